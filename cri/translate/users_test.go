package translate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"kurma.io/stager/cri/records"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func mapping(container, host, length uint32) *runtimeapi.IDMapping {
	return &runtimeapi.IDMapping{ContainerId: container, HostId: host, Length: length}
}

func userns(mode runtimeapi.NamespaceMode, mappings ...*runtimeapi.IDMapping) *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: &runtimeapi.UserNamespace{Mode: mode, Uids: mappings, Gids: mappings},
	}
}

func TestUserNamespacesAreRead(t *testing.T) {
	pod, node := runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE
	different := userns(pod, mapping(0, 7, 10))
	different.UsernsOptions.Gids = []*runtimeapi.IDMapping{mapping(0, 8, 10)}
	for _, test := range []struct {
		options *runtimeapi.NamespaceOption
		want    *records.Users
		err     string
	}{
		{options: nil},
		{options: &runtimeapi.NamespaceOption{}},
		{options: userns(node)},
		{options: userns(pod, mapping(0, 7, 10)), want: &records.Users{HostID: 7, Size: 10}},
		{options: userns(node, mapping(0, 7, 10)), err: "mappings for that of the node"},
		{options: userns(pod), err: "0 mappings, want one"},
		{options: userns(pod, mapping(0, 7, 10), mapping(10, 99, 10)), err: "2 mappings, want one"},
		{options: userns(pod, mapping(1, 7, 10)), err: "from 1 on"},
		{options: userns(pod, mapping(0, 0, 10)), err: "the host's from 1 to 4294967294"},
		{options: userns(pod, mapping(0, 7, 0)), err: "mapping of 0 IDs"},
		{options: userns(pod, mapping(0, 1<<32-2, 1)), want: &records.Users{HostID: 1<<32 - 2, Size: 1}},
		{options: userns(pod, mapping(0, 1<<32-2, 2)), err: "the host's from 1 to 4294967294"},
		{options: different, err: "different mappings"},
		{options: userns(runtimeapi.NamespaceMode_CONTAINER, mapping(0, 7, 10)), err: "mode CONTAINER, want POD or NODE"},
		{options: userns(runtimeapi.NamespaceMode_TARGET, mapping(0, 7, 10)), err: "mode TARGET"},
	} {
		got, err := UsersOf(test.options)
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%v: %v, %v, want %v, %q", test.options, got, err, test.want, test.err)
		}
	}
}

func TestAContainerHasTheUsersOfItsSandbox(t *testing.T) {
	users := &records.Users{HostID: 7, Size: 10}
	own := userns(runtimeapi.NamespaceMode_POD, mapping(0, 7, 10))
	for name, test := range map[string]struct {
		sandbox *records.Users
		edit    func(*runtimeapi.ContainerConfig, *runtimeapi.LinuxContainerSecurityContext)
		err     string
		refused bool
	}{
		"the sandbox's": {sandbox: users, edit: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions = own
		}},
		"no word": {sandbox: users, edit: func(*runtimeapi.ContainerConfig, *runtimeapi.LinuxContainerSecurityContext) {}},
		"another": {sandbox: users, err: "not that of the sandbox", edit: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions = userns(runtimeapi.NamespaceMode_POD, mapping(0, 8, 10))
		}},
		"the host's": {sandbox: users, err: "not that of the sandbox", edit: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions = userns(runtimeapi.NamespaceMode_NODE)
		}},
		"one beside the host's": {err: "not that of the sandbox", edit: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
			s.NamespaceOptions = own
		}},
		"privileged": {sandbox: users, err: "privileged container", refused: true, edit: func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
			s.Privileged = true
		}},
		"an image as volume": {sandbox: users, err: "image at /x", refused: true, edit: func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext) {
			c.Mounts = []*runtimeapi.Mount{{Image: &runtimeapi.ImageSpec{Image: "i"}, ContainerPath: "/x", Readonly: true}}
		}},
		"a mapped mount": {sandbox: users, edit: func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", UidMappings: own.UsernsOptions.Uids, GidMappings: own.UsernsOptions.Gids}}
		}},
		"a mount with another mapping": {sandbox: users, err: "mount at /x with another mapping", refused: true, edit: func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", GidMappings: []*runtimeapi.IDMapping{mapping(0, 8, 10)}}}
		}},
		"a mapped mount beside the host's users": {err: "mount at /x with another mapping", refused: true, edit: func(c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/link", ContainerPath: "/x", UidMappings: own.UsernsOptions.Uids}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts()
			f.Users = test.sandbox
			pod, err := Container(config(func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext, _ *runtimeapi.LinuxContainerResources) {
				test.edit(c, s)
			}), f)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || errors.Is(err, errRefused) != test.refused {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			var got struct{ UserNamespace *records.Users }
			if err := errors.Join(err, json.Unmarshal(pod.StagerConfig, &got)); err != nil {
				t.Fatal(err)
			}
			if got.UserNamespace == nil || *got.UserNamespace != *users || strings.Contains(string(pod.Manifest), `"user":"host"`) {
				t.Errorf("%s, %s", pod.StagerConfig, pod.Manifest)
			}
		})
	}
}
