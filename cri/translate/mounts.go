package translate

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountsOf returns a volume and a mount for each of the configuration's mounts and devices, and for the sandbox's files
// that it does not mount itself.
func mountsOf(c *runtimeapi.ContainerConfig, f Facts) (volumes []podVolume, mounts []podMount, err error) {
	add := func(source, target string, readOnly bool) {
		name := fmt.Sprintf("cri-%d", len(volumes))
		volumes = append(volumes, podVolume{name, "host", source, readOnly})
		mounts = append(mounts, podMount{name, target})
	}
	targets := make(map[string]bool)
	for _, m := range c.GetMounts() {
		if err := checkMount(m); err != nil {
			return nil, nil, err
		}
		targets[path.Clean(m.GetContainerPath())] = true
		add(f.Sources[m.GetHostPath()], m.GetContainerPath(), m.GetReadonly())
	}
	for _, d := range c.GetDevices() {
		if strings.Trim(d.GetPermissions(), "rwm") != "" {
			return nil, nil, refuse("permissions %q of device %s: want letters of rwm", d.GetPermissions(), d.GetHostPath())
		}
		targets[path.Clean(d.GetContainerPath())] = true
		add(f.Sources[d.GetHostPath()], d.GetContainerPath(), d.GetPermissions() != "" && !strings.Contains(d.GetPermissions(), "w"))
	}
	if len(c.GetCDIDevices()) > 0 {
		return nil, nil, refuse("CDI device %q", c.GetCDIDevices()[0].GetName())
	}
	for _, target := range slices.Sorted(maps.Keys(f.Files)) {
		if !targets[target] {
			add(f.Files[target], target, false)
		}
	}
	return volumes, mounts, nil
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
