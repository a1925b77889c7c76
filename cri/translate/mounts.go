package translate

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"kurma.io/stager/cri/records"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountsOf returns a volume and a mount for each of the configuration's mounts and devices, and for the sandbox's files
// that it does not mount itself. composed are the trees of mounts that the server composes: their volumes are in
// f.ComposedDir.
func mountsOf(
	c *runtimeapi.ContainerConfig, f Facts,
) (volumes []podVolume, mounts []podMount, composed []records.Tree, err error) {
	binds, err := bindsOf(c, f)
	if err != nil {
		return nil, nil, nil, err
	}
	for i, t := range treesOf(binds) {
		volume := podVolume{fmt.Sprintf("cri-%d", i), "host", t.Source, t.ReadOnly}
		if len(t.Inner) > 0 {
			volume.Source, volume.ReadOnly = path.Join(f.ComposedDir, t.Name), false
			composed = append(composed, t)
		}
		volumes, mounts = append(volumes, volume), append(mounts, podMount{volume.Name, t.Target})
	}
	return volumes, mounts, composed, nil
}

func deviceBind(d *runtimeapi.Device, f Facts) (records.Bind, error) {
	if strings.Trim(d.GetPermissions(), "rwm") != "" {
		return records.Bind{}, refuse("permissions %q of device %s: want letters of rwm", d.GetPermissions(), d.GetHostPath())
	}
	readOnly := d.GetPermissions() != "" && !strings.Contains(d.GetPermissions(), "w")
	return records.Bind{Source: f.Sources[d.GetHostPath()], Target: d.GetContainerPath(), ReadOnly: readOnly}, nil
}

// bindsOf lists all that is mounted.
func bindsOf(c *runtimeapi.ContainerConfig, f Facts) ([]records.Bind, error) {
	var binds []records.Bind
	for _, m := range c.GetMounts() {
		if err := checkMount(m); err != nil {
			return nil, err
		}
		binds = append(binds, records.Bind{
			Source: f.Sources[m.GetHostPath()], Target: m.GetContainerPath(), ReadOnly: m.GetReadonly(),
		})
	}
	for _, d := range c.GetDevices() {
		bind, err := deviceBind(d, f)
		if err != nil {
			return nil, err
		}
		binds = append(binds, bind)
	}
	if len(c.GetCDIDevices()) > 0 {
		return nil, refuse("CDI device %q", c.GetCDIDevices()[0].GetName())
	}
	for _, target := range slices.Sorted(maps.Keys(f.Files)) {
		same := func(b records.Bind) bool { return path.Clean(b.Target) == target }
		if !slices.ContainsFunc(binds, same) {
			binds = append(binds, records.Bind{Source: f.Files[target], Target: target})
		}
	}
	return binds, nil
}

func checkMount(m *runtimeapi.Mount) error {
	target := m.GetContainerPath()
	switch {
	case !path.IsAbs(target):
		return refuse("mount target %q, which is not an absolute path", target)
	case m.GetImage() != nil:
		return refuse("mount of an image at %s", target)
	case m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return refuse("bidirectional mount propagation at %s", target)
	case len(m.GetUidMappings()) > 0 || len(m.GetGidMappings()) > 0:
		return refuse("mapped mount at %s", target)
	case len(m.GetMountOptions()) > 0:
		return refuse("mount options at %s", target)
	}
	return nil
}
