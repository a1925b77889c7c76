package translate

import (
	"errors"
	"strings"
	"testing"

	"kurma.io/stager/cri/cdi"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

func TestDevicesAreNamedByFieldAndAnnotations(t *testing.T) {
	got := DeviceNames(&runtimeapi.ContainerConfig{
		CDIDevices:  []*runtimeapi.CDIDevice{{Name: "v/c=1"}},
		Annotations: map[string]string{"cdi.k8s.io/b": "v/c=3", "cdi.k8s.io/a": "v/c=2,v/c=1", "cdi.k8s.io": "v/c=4"},
	})
	if diff := cmp.Diff([]string{"v/c=1", "v/c=2", "v/c=1", "v/c=3"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDevicesChangeAConfiguration(t *testing.T) {
	c := &runtimeapi.ContainerConfig{
		Envs:    []*runtimeapi.KeyValue{{Key: "A", Value: []byte("pod")}},
		Mounts:  []*runtimeapi.Mount{{HostPath: "/pod", ContainerPath: "/lib/a.so/"}, {HostPath: "/pod", ContainerPath: "/data"}},
		Devices: []*runtimeapi.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/gpu"}},
	}
	before := proto.CloneOf(c)
	null := specs.DeviceNode{Path: "/dev/gpu", HostPath: "/dev/null", Permissions: "rw"}
	kvm := specs.DeviceNode{Path: "/dev/kvm", Type: "c"}
	got, needs, err := WithDevices(c, []cdi.Change{
		{Device: "v/c=1", Edits: specs.ContainerEdits{
			Env: []string{"A=device", "B=x=y"}, DeviceNodes: []*specs.DeviceNode{&null, &kvm}, AdditionalGIDs: []uint32{0, 44},
		}},
		{Device: "v/c=2", Edits: specs.ContainerEdits{Mounts: []*specs.Mount{
			{HostPath: "/usr/lib/a.so", ContainerPath: "/lib/a.so", Options: []string{"ro", "nosuid", "nodev", "rbind", "rprivate"}},
			{HostPath: "/run/gpu", ContainerPath: "/run/gpu", Options: []string{"rw", "rslave"}, Type: "bind"},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Envs: []*runtimeapi.KeyValue{
			{Key: "A", Value: []byte("pod")}, {Key: "A", Value: []byte("device")}, {Key: "B", Value: []byte("x=y")},
		},
		Mounts: []*runtimeapi.Mount{
			{HostPath: "/pod", ContainerPath: "/data"},
			{HostPath: "/usr/lib/a.so", ContainerPath: "/lib/a.so", Readonly: true, MountOptions: []string{"nosuid", "nodev"}},
			{HostPath: "/run/gpu", ContainerPath: "/run/gpu", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
		},
		Devices: []*runtimeapi.Device{
			{HostPath: "/dev/null", ContainerPath: "/dev/gpu", Permissions: "rw"}, {HostPath: "/dev/kvm", ContainerPath: "/dev/kvm"},
		},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{SupplementalGroups: []int64{44}}},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	wantNeeds := OnHost{"/dev/null": &null, "/dev/kvm": &kvm, "/usr/lib/a.so": nil, "/run/gpu": nil}
	if diff := cmp.Diff(wantNeeds, needs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !proto.Equal(c, before) {
		t.Errorf("the caller's configuration has changed: %v", c)
	}
	if same, needs, err := WithDevices(c, nil); same != c || needs != nil || err != nil {
		t.Errorf("%v, %v, %v, want the same without devices", same, needs, err)
	}
}

// What a device changes and no stager does is refused by its name.
func TestChangesOfDevicesAreRefused(t *testing.T) {
	mount := func(m specs.Mount) specs.ContainerEdits { return specs.ContainerEdits{Mounts: []*specs.Mount{&m}} }
	node := func(n specs.DeviceNode) specs.ContainerEdits {
		return specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{&n}}
	}
	for want, edits := range map[string]specs.ContainerEdits{
		"hook createContainer (/bin/hook)":           {Hooks: []*specs.Hook{{HookName: "createContainer", Path: "/bin/hook"}}},
		"intelRdt":                                   {IntelRdt: new(specs.IntelRdt)},
		"network device eth7":                        {NetDevices: []*specs.LinuxNetDevice{{HostInterfaceName: "eth7", Name: "eth0"}}},
		`variable "A": want NAME=VALUE`:              {Env: []string{"A"}},
		`device node "gpu": want an absolute`:        node(specs.DeviceNode{Path: "gpu"}),
		"device node /gpu with permissions \"none\"": node(specs.DeviceNode{Path: "/gpu", Permissions: "none"}),
		`device node /gpu of type "p": want`:         node(specs.DeviceNode{Path: "/gpu", Type: "p"}),
		`mount of type "tmpfs" at /x: want bind`:     mount(specs.Mount{HostPath: "tmpfs", ContainerPath: "/x", Type: "tmpfs"}),
		`mount option "rshared" at /x`:               mount(specs.Mount{HostPath: "/a", ContainerPath: "/x", Options: []string{"rshared"}}),
		`CDI device "v/c=1": mount option "size"`:    mount(specs.Mount{HostPath: "/a", ContainerPath: "/x", Options: []string{"size"}}),
	} {
		_, _, err := WithDevices(new(runtimeapi.ContainerConfig), []cdi.Change{{Device: "v/c=1", Edits: edits}})
		if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want one line with %q", err, want)
		}
	}
}
