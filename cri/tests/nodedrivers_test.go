package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountsBelow returns the host's mounts at and below a path, as "path source".
func (n *node) mountsBelow(path string) (all []string) {
	n.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		if point := strings.Fields(before)[4]; point == path || strings.HasPrefix(point, path+"/") {
			all = append(all, point+" "+strings.Fields(after)[1])
		}
	}
	slices.Sort(all)
	return all
}

// wantMounts checks the mounts at and below a path, of which more are new.
func (n *node) wantMounts(when, path string, before []string, more ...string) {
	n.Helper()
	want := append(slices.Clone(before), more...)
	slices.Sort(want)
	if got := n.mountsBelow(path); !slices.Equal(got, want) {
		n.Errorf("%s: the host's mounts are\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A node driver of storage: kubelet's folder is mounted in both directions, and its plugins are mounted inside. The host
// sees the driver's mounts, also one inside an inner mount in both directions, and none of the runtime's.
func TestMountsInsideBidirectionalOnes(t *testing.T) {
	p := newPod(t)
	const private, both = runtimeapi.MountPropagation_PROPAGATION_PRIVATE, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	for i, test := range []struct {
		outer, inner runtimeapi.MountPropagation
		around       bool // one more mount, private, is around both
		leave        bool // a mount in the inner one appears on the host
	}{
		{both, private, false, false},
		{both, both, false, true},
		{both, both, true, true},
		{private, both, false, true},
	} {
		top := p.share(fmt.Sprintf("kubelet-%d", i)) // with a tmpfs at sub
		for _, folder := range []string{"plugins/driver", "sub/registry"} {
			if err := os.MkdirAll(filepath.Join(top, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		before := p.mountsBelow(top)
		config := p.script(`cd /var/lib/kubelet; mount -t tmpfs outside out && mount -t tmpfs driver plugins/driver && echo ready
			while [ ! -e /go/go ]; do sleep 0.05; done; grep -c '^later /var/lib/kubelet/in' /proc/mounts; ls plugins/token sub/registry`)
		secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })(config)
		token, goes := p.path("token/file"), p.path(fmt.Sprintf("go-%d", i))
		p.write(token, "")
		config.Mounts = []*runtimeapi.Mount{
			{HostPath: top, ContainerPath: "/var/lib/kubelet", Propagation: test.outer},
			{HostPath: filepath.Join(top, "plugins"), ContainerPath: "/var/lib/kubelet/plugins", Propagation: test.inner},
			{HostPath: p.path("token"), ContainerPath: "/var/lib/kubelet/plugins/token", Readonly: true},
			{HostPath: p.path("token"), ContainerPath: "/var/lib/kubelet/sub/registry"},
			{HostPath: goes, ContainerPath: "/go"},
		}
		if test.around {
			config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: p.path("around"), ContainerPath: "/var"})
		}
		id := p.startNew(config)
		surroundings.Eventually(t, "the container has mounted", func() bool { return p.output(config) == "ready\n" })
		var out []string
		if test.outer == both {
			out = append(out, top+"/out outside")
		}
		if test.leave {
			out = append(out, top+"/plugins/driver driver")
		}
		name := fmt.Sprintf("%+v", test)
		p.wantMounts(name, top, before, out...)
		if err := unix.Mount("later", filepath.Join(top, "in"), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		out = append(out, top+"/in later")
		p.write(filepath.Join(goes, "go"), "")
		p.awaitExit(id)
		comes := map[bool]string{false: "0\n", true: "1\n"}[test.outer == both]
		if got, want := p.output(config), "ready\n"+comes+"plugins/token:\nfile\n\nsub/registry:\nfile\n"; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if _, err := p.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		p.wantMounts(name+", removed", top, before, out...)
	}
}

// A container with the host's /dev at /dev, as node drivers and device plugins have it, finds the host's nodes and
// terminals, and the pod's /dev/shm. Whether it may open a device is decided as without the mount.
func TestTheHostsDevInAContainer(t *testing.T) {
	p := newPod(t)
	if err := unix.Mount("", "/dev", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	before := p.mountsBelow("/dev")
	p.do("echo pod >/dev/shm/mark", nil)
	const show = "stat -c %d /dev /dev/pts; cat /dev/shm/mark; (: </dev/kmsg) 2>&1 && echo opened; true"
	var dev, pts unix.Stat_t
	if err := unix.Stat("/dev", &dev); err != nil {
		t.Fatal(err)
	}
	if err := unix.Stat("/dev/pts", &pts); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		privileged  bool
		propagation runtimeapi.MountPropagation
		opens       string
	}{
		{true, runtimeapi.MountPropagation_PROPAGATION_PRIVATE, "opened\n"},
		{true, runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, "opened\n"},
		{true, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, "opened\n"},
		{false, runtimeapi.MountPropagation_PROPAGATION_PRIVATE, "sh: can't open /dev/kmsg: Operation not permitted\n"},
	} {
		mount := func(c *runtimeapi.ContainerConfig) {
			secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = test.privileged })(c)
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/dev", ContainerPath: "/dev", Propagation: test.propagation}}
		}
		if got, want := p.do(show, mount), fmt.Sprintf("%d\n%d\npod\n%s", dev.Dev, pts.Dev, test.opens); got != want {
			t.Errorf("%+v: %q, want %q", test, got, want)
		}
		config := p.script("tty; sleep 1000")
		mount(config)
		config.Tty, config.Stdin = true, true
		id := p.startNew(config)
		surroundings.Eventually(t, "the container has a terminal", func() bool { return strings.HasSuffix(p.output(config), "\n") })
		if _, err := os.Stat(strings.TrimSpace(p.output(config))); err != nil || !strings.HasPrefix(p.output(config), "/dev/pts/") {
			t.Errorf("%+v: terminal %q: %v", test, p.output(config), err)
		}
		r, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"cat", "/dev/shm/mark"}})
		if err != nil || string(r.Stdout) != "pod\n" {
			t.Errorf("%+v: a command: %v, %v", test, r, err)
		}
		p.wantMounts(fmt.Sprintf("%+v", test), "/dev", before)
		if _, err := p.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		p.wantMounts(fmt.Sprintf("%+v, removed", test), "/dev", before)
	}
}
