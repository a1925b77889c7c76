package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/userns"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The containers of a pod with hostUsers: false share a user namespace, to which the pod's network belongs: user 0 has
// power over the network, and none over the host. Files of volumes keep their owners.
func TestAPodHasUsersOfItsOwn(t *testing.T) {
	n := newPod(t)
	config := n.sandboxConfig()
	mapping := []*runtimeapi.IDMapping{{HostId: 3000000, Length: 65536}}
	options := &runtimeapi.NamespaceOption{
		Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping},
	}
	config.Linux.SecurityContext.NamespaceOptions = options
	if !userns.MapsTmpfs() {
		_, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
		if err == nil || !strings.Contains(err.Error(), "before Linux 6.3") {
			t.Errorf("error %v", err)
		}
		return
	}
	p := n.run(config)
	p.image = n.image
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	n.write(n.path("volume/theirs"), "")
	if err := os.Chown(n.path("volume/theirs"), 33, 44); err != nil {
		t.Fatal(err)
	}
	show := `tr -s ' ' </proc/self/uid_map; stat -c '%n %u:%g' / /etc/hosts /etc/resolv.conf /dev/null /v/theirs; touch /v/mine /dev/shm/mine; stat -c '%n %u:%g' /v/mine
ip address add 192.0.2.9/32 dev lo && echo added; ip address del 192.0.2.9/32 dev lo; ping -c 1 -w 5 127.0.0.1 | grep -o '1 packets received'; mount -t tmpfs none /tmp 2>&1; readlink /proc/self/ns/user`
	edit := secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.NamespaceOptions = options
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"NET_ADMIN", "SYS_ADMIN"}}
	})
	all := func(c *runtimeapi.ContainerConfig) {
		edit(c)
		c.Mounts = []*runtimeapi.Mount{{HostPath: n.path("volume"), ContainerPath: "/v", UidMappings: mapping, GidMappings: mapping}}
	}
	first, second := p.do(show, all), p.do(show, all)
	want := " 0 3000000 65536\n/ 0:0\n/etc/hosts 0:0\n/etc/resolv.conf 0:0\n/dev/null 0:0\n/v/theirs 33:44\n/v/mine 0:0\nadded\n1 packets received\nmount: permission denied (are you root?)\nuser:["
	if first != second || !strings.HasPrefix(first, want) || strings.Contains(first, own) {
		t.Errorf("a container writes\n%sand another\n%swant %q, and another namespace than %s", first, second, want, own)
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path("volume/mine"), &st); err != nil || st.Uid != 0 {
		t.Errorf("on the host, the container's file belongs to %d, %v", st.Uid, err)
	}
	running := p.startNew(edited(p.script("exec sleep 1000"), all))
	answer, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: running, Cmd: []string{"sh", "-c", "id -u; cat /proc/self/uid_map | tr -s ' '"}, Timeout: 10})
	if err != nil || string(answer.Stdout) != "0\n 0 3000000 65536\n" {
		t.Errorf("a command writes %s, %v", answer, err)
	}
	status, err := p.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil || fmt.Sprint(status.Status.Linux.Namespaces.Options.UsernsOptions) != fmt.Sprint(options.UsernsOptions) || status.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("%v, %v", status, err)
	}
	if _, err := p.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	if _, err := p.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Error(err)
	}
	options.Network = runtimeapi.NamespaceMode_NODE
	if _, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}); err == nil || !strings.Contains(err.Error(), "with the node's network namespace") {
		t.Errorf("error %v", err)
	}
	options.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_CONTAINER, Uids: mapping, Gids: mapping}
	options.Network = runtimeapi.NamespaceMode_POD
	if _, err := n.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config}); err == nil || !strings.Contains(err.Error(), "user namespace: mode CONTAINER") {
		t.Errorf("error %v", err)
	}
}

func edited(c *runtimeapi.ContainerConfig, edit func(*runtimeapi.ContainerConfig)) *runtimeapi.ContainerConfig {
	edit(c)
	return c
}
