package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Volumes have the options of their mounts, with all that is mounted below, as folders and files, and inside another one.
// The host's mounts stay as they are.
func TestMountsHaveTheirOptions(t *testing.T) {
	p := newPod(t)
	top := p.share("shared") // with a tmpfs at sub
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"busybox", "sub/busybox"} {
		if err := os.WriteFile(filepath.Join(top, name), program, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mknod(filepath.Join(top, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	try := "for f in /data/busybox /data/sub/busybox /one/busybox /plain/in/busybox /plain/busybox; do $f true 2>/dev/null && echo runs || echo not; done; (: </data/null) 2>/dev/null && echo opens || echo not; grep -c ' /data.*nosuid' /proc/mounts; true"
	for _, test := range []struct {
		options     []string
		propagation runtimeapi.MountPropagation
		readOnly    bool
		want        string
	}{
		{nil, runtimeapi.MountPropagation_PROPAGATION_PRIVATE, false, "runs\nruns\nruns\nruns\nruns\nopens\n0\n"},
		{[]string{"noexec"}, runtimeapi.MountPropagation_PROPAGATION_PRIVATE, false, "not\nnot\nnot\nnot\nruns\nopens\n0\n"},
		{[]string{"noexec", "nodev", "nosuid"}, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, false, "not\nnot\nnot\nnot\nruns\nnot\n2\n"},
		{[]string{"nodev", "nosuid"}, runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, true, "runs\nruns\nruns\nruns\nruns\nnot\n2\n"},
	} {
		got := p.do(try, func(c *runtimeapi.ContainerConfig) {
			secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })(c)
			c.Mounts = []*runtimeapi.Mount{
				{HostPath: top, ContainerPath: "/data", MountOptions: test.options, Propagation: test.propagation, Readonly: test.readOnly},
				{HostPath: filepath.Join(top, "busybox"), ContainerPath: "/one/busybox", MountOptions: test.options},
				{HostPath: top, ContainerPath: "/plain"},
				{HostPath: top, ContainerPath: "/plain/in", MountOptions: test.options},
			}
		})
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test, got, test.want)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+top) && strings.Contains(line, "noexec") {
			t.Errorf("the host's mount is changed: %s", line)
		}
	}
	if err != nil {
		t.Error(err)
	}
	config := p.script("true")
	config.Mounts = []*runtimeapi.Mount{{HostPath: top, ContainerPath: "/data", MountOptions: []string{"nodev", "sync"}}}
	if _, err := p.createContainer(config); err == nil || !strings.Contains(err.Error(), `mount option "sync" at /data: want noexec, nodev or nosuid: not supported`) {
		t.Errorf("an unknown option: %v", err)
	}
	r, err := p.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil || !r.Features.MountOptions {
		t.Errorf("%v, %v", r.GetFeatures(), err)
	}
}
