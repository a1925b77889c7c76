package translate

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"kurma.io/stager/cri/cdi"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// deviceAnnotations is the prefix of the annotations that name devices of the Container Device Interface, as older
// device plugins do.
const deviceAnnotations = "cdi.k8s.io/"

// DeviceNames are the names of the container's devices of the Container Device Interface.
func DeviceNames(c *runtimeapi.ContainerConfig) (names []string) {
	for _, d := range c.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	for _, key := range slices.Sorted(maps.Keys(c.GetAnnotations())) {
		if strings.HasPrefix(key, deviceAnnotations) {
			names = append(names, strings.Split(c.GetAnnotations()[key], ",")...)
		}
	}
	return names
}

// OnHost are the paths of the host that devices need, with the node that is wanted there; nil for a mount's source.
type OnHost map[string]*specs.DeviceNode

// WithDevices returns the configuration with the changes, which replace variables, mounts and devices of their names
// and paths. c stays as it is.
func WithDevices(c *runtimeapi.ContainerConfig, changes []cdi.Change) (*runtimeapi.ContainerConfig, OnHost, error) {
	if len(changes) == 0 {
		return c, nil, nil
	}
	c = proto.CloneOf(c)
	if c.Linux == nil {
		c.Linux = new(runtimeapi.LinuxContainerConfig)
	}
	if c.Linux.SecurityContext == nil {
		c.Linux.SecurityContext = new(runtimeapi.LinuxContainerSecurityContext)
	}
	needs := make(OnHost)
	for _, change := range changes {
		if err := apply(c, needs, change.Edits); err != nil {
			return nil, nil, fmt.Errorf("CDI device %q: %w", change.Device, err)
		}
	}
	return c, needs, nil
}

// apply makes changes to c, which has a security context, and adds what they need to needs.
func apply(c *runtimeapi.ContainerConfig, needs OnHost, e specs.ContainerEdits) error {
	switch {
	case len(e.Hooks) > 0:
		return refuse("hook %s (%s)", e.Hooks[0].HookName, e.Hooks[0].Path)
	case e.IntelRdt != nil:
		return refuse("intelRdt")
	case len(e.NetDevices) > 0:
		return refuse("network device %s", e.NetDevices[0].HostInterfaceName)
	}
	for _, text := range e.Env {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return refuse("variable %q: want NAME=VALUE", text)
		}
		c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	for _, n := range e.DeviceNodes {
		device, err := nodeOf(*n)
		if err != nil {
			return err
		}
		same := func(d *runtimeapi.Device) bool {
			return path.Clean(d.GetContainerPath()) == path.Clean(n.Path)
		}
		c.Devices = append(slices.DeleteFunc(c.Devices, same), device)
		if other := needs[device.HostPath]; other != nil && !reflect.DeepEqual(other, n) {
			return refuse("device node %s is of %s, which is wanted otherwise as well", n.Path, device.HostPath)
		}
		needs[device.HostPath] = n
	}
	for _, m := range e.Mounts {
		mount, err := mountOf(*m)
		if err != nil {
			return err
		}
		same := func(m *runtimeapi.Mount) bool {
			return path.Clean(m.GetContainerPath()) == path.Clean(mount.ContainerPath)
		}
		c.Mounts = append(slices.DeleteFunc(c.Mounts, same), mount)
		if _, isNode := needs[mount.HostPath]; !isNode {
			needs[mount.HostPath] = nil
		}
		if err := CheckMounts(c); err != nil { // before a spec's many mounts take long
			return err
		}
	}
	for _, id := range e.AdditionalGIDs {
		if id != 0 { // as the specification has it
			s := c.Linux.SecurityContext
			s.SupplementalGroups = append(s.SupplementalGroups, int64(id))
		}
	}
	return nil
}

// nodeOf returns a device node as a device: the host's own node with its owner and mode.
func nodeOf(n specs.DeviceNode) (*runtimeapi.Device, error) {
	if !path.IsAbs(n.Path) {
		return nil, refuse("device node %q: want an absolute path", n.Path)
	}
	host := n.HostPath
	if host == "" {
		host = n.Path
	}
	switch {
	case !slices.Contains([]string{"", "b", "c", "u"}, n.Type):
		return nil, refuse("device node %s of type %q: want b, c or u", n.Path, n.Type)
	case n.Permissions != "" && !strings.Contains(n.Permissions, "r"): // a mount can be read
		return nil, refuse("device node %s with permissions %q: want r or rw", n.Path, n.Permissions)
	}
	return &runtimeapi.Device{HostPath: host, ContainerPath: n.Path, Permissions: n.Permissions}, nil
}

// mountOf returns a mount as kubelet would ask for it.
func mountOf(m specs.Mount) (*runtimeapi.Mount, error) {
	if m.Type != "" && m.Type != "bind" && m.Type != "none" {
		return nil, refuse("mount of type %q at %s: want bind", m.Type, m.ContainerPath)
	}
	mount := &runtimeapi.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath}
	for _, option := range m.Options {
		switch option {
		case "bind", "rbind", "private", "rprivate", "rw", "dev", "exec", "suid":
		case "ro":
			mount.Readonly = true
		case "slave", "rslave":
			mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case "noexec", "nodev", "nosuid":
			mount.MountOptions = append(mount.MountOptions, option)
		default:
			return nil, refuse("mount option %q at %s", option, m.ContainerPath)
		}
	}
	return mount, nil
}
