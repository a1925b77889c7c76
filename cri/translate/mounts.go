package translate

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/plan"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// volumeRules is what the stager's configuration says of volumes.
type volumeRules struct {
	propagation map[string]string
	devices     []string // never nil, which would be all
}

// mount returns a volume and a mount for each tree, and the rules of the volumes. It keeps the trees that the server
// composes: their volumes are in f.ComposedDir. A mount that the container's devices do not list is none, even if the
// node at the host's path is: whoever can make that node, or choose the path, would have any device of the machine.
func (p *Pod) mount(trees []records.Tree, f Facts) (volumes []podVolume, mounts []podMount, rules volumeRules) {
	words := make(map[string]string)
	rules = volumeRules{words, []string{}}
	for i, t := range trees {
		volume := podVolume{fmt.Sprintf("cri-%d", i), "host", t.Source, t.ReadOnly}
		if t.Device {
			rules.devices = append(rules.devices, volume.Name)
		}
		shared := func(b records.Bind) bool { return b.Propagation == records.Shared }
		switch {
		case slices.ContainsFunc(append([]records.Bind{t.Bind}, t.Inner...), shared):
			words[volume.Name] = "shared"
			p.HostVolumes.Shared = append(p.HostVolumes.Shared, volume.Name)
		case !isComposed(t) && t.Propagation == records.Private:
			words[volume.Name] = "private"
		}
		switch {
		case isComposed(t):
			volume.Source, volume.ReadOnly = path.Join(f.ComposedDir, t.Name), false
			p.Composed = append(p.Composed, t)
		case isReadOnlyTop(t.Bind, f):
			volume.ReadOnly = false
			p.HostVolumes.ReadOnlyTop = append(p.HostVolumes.ReadOnlyTop, volume.Name)
		}
		volumes, mounts = append(volumes, volume), append(mounts, podMount{volume.Name, t.Target})
	}
	return volumes, mounts, rules
}

// isComposed reports whether the server makes the mount, because the stager cannot.
func isComposed(t records.Tree) bool { return len(t.Inner) > 0 || len(t.Options) > 0 }

// isReadOnlyTop reports whether a mount is not as the stager makes a read-only volume: read-only with all that is
// mounted in it, and private then.
func isReadOnlyTop(b records.Bind, f Facts) bool {
	return b.ReadOnly && !b.Recursive && (b.Propagation != records.Private || f.MountsBelow(b.Source))
}

// checkTrees refuses a device inside a mount: the stager lets an app open the devices that are volumes, and that device
// is a part of one. A privileged app may open every device.
func checkTrees(trees []records.Tree, privileged bool) error {
	for _, t := range trees {
		for _, b := range t.Inner {
			if b.Device && !privileged {
				return refuse("device at %s inside the mount at %s", path.Join(t.Target, b.Target), t.Target)
			}
		}
	}
	return nil
}

func deviceBind(d *runtimeapi.Device, f Facts) (records.Bind, error) {
	if strings.Trim(d.GetPermissions(), "rwm") != "" {
		return records.Bind{}, refuse("permissions %q of device %s: want letters of rwm", d.GetPermissions(), d.GetHostPath())
	}
	readOnly := d.GetPermissions() != "" && !strings.Contains(d.GetPermissions(), "w")
	source := f.Sources[d.GetHostPath()]
	return records.Bind{Source: source, Target: d.GetContainerPath(), ReadOnly: readOnly, Device: true}, nil
}

// ownMounts are the most mounts that a container has beside its configuration's: its /dev/shm and files in /etc.
const ownMounts = 8

// CheckMounts refuses a container of more mounts and devices than its stager takes, before any of them is looked at.
func CheckMounts(c *runtimeapi.ContainerConfig) error {
	if n := len(c.GetMounts()) + len(c.GetDevices()); n > plan.MaxMounts-ownMounts {
		return refuse("%d mounts and devices: want at most %d", n, plan.MaxMounts-ownMounts)
	}
	return nil
}

// bindsOf lists all that is mounted.
func bindsOf(c *runtimeapi.ContainerConfig, f Facts) ([]records.Bind, error) {
	var binds []records.Bind
	for _, m := range c.GetMounts() {
		if err := errors.Join(checkMount(m), checkMapping(m, f.Users)); err != nil {
			return nil, err
		}
		bind := records.Bind{
			Source: f.Sources[m.GetHostPath()], Target: m.GetContainerPath(),
			ReadOnly: m.GetReadonly(), Recursive: m.GetRecursiveReadOnly(), Propagation: propagationOf(m),
			Options: m.GetMountOptions(),
		}
		if m.GetImage() != nil {
			bind.Source = f.Images[m.GetContainerPath()].Source
		}
		if err := checkShared(c, bind, f); err != nil {
			return nil, err
		}
		binds = append(binds, bind)
	}
	for _, d := range c.GetDevices() {
		bind, err := deviceBind(d, f)
		if err != nil {
			return nil, err
		}
		binds = append(binds, bind)
	}
	for _, target := range slices.Sorted(maps.Keys(f.Files)) {
		same := func(b records.Bind) bool { return path.Clean(b.Target) == target }
		if !slices.ContainsFunc(binds, same) {
			readOnly := target != "/dev/shm" && c.GetLinux().GetSecurityContext().GetReadonlyRootfs()
			binds = append(binds, records.Bind{Source: f.Files[target], Target: target, ReadOnly: readOnly})
		}
	}
	return binds, nil
}

func checkMount(m *runtimeapi.Mount) error {
	target := m.GetContainerPath()
	switch {
	case !path.IsAbs(target):
		return refuse("relative mount target %q", target)
	case m.GetImage() != nil && !m.GetReadonly():
		return refuse("writable mount of an image at %s", target)
	case m.GetImage() != nil && m.GetHostPath() != "":
		return refuse("mount of an image at %s with a host path", target)
	case m.GetImage() != nil && m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return refuse("mount of an image at %s without private propagation", target)
	case m.GetRecursiveReadOnly() && !m.GetReadonly():
		return refuse("recursively read-only mount at %s without readonly", target)
	case m.GetRecursiveReadOnly() && m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return refuse("recursively read-only mount at %s without private propagation", target)
	}
	for _, option := range m.GetMountOptions() {
		if !slices.Contains([]string{"noexec", "nodev", "nosuid"}, option) {
			return refuse("mount option %q at %s: want noexec, nodev or nosuid", option, target)
		}
	}
	return nil
}

func propagationOf(m *runtimeapi.Mount) records.Propagation {
	switch m.GetPropagation() {
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return records.Slave
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return records.Shared
	}
	return records.Private
}

// checkShared refuses a mount that cannot propagate to the host, or must not.
func checkShared(c *runtimeapi.ContainerConfig, b records.Bind, f Facts) error {
	switch {
	case b.Propagation != records.Shared:
	case !c.GetLinux().GetSecurityContext().GetPrivileged():
		return refuse("bidirectional mount propagation at %s in a container that is not privileged", b.Target)
	case !f.SharedMount(b.Source):
		return refuse("bidirectional mount propagation at %s: %s is not on a shared mount of the host", b.Target, b.Source)
	}
	return nil
}
