package tests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// secure returns an editor of a configuration's security context.
func secure(edit func(*runtimeapi.LinuxContainerSecurityContext)) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) {
		s := &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}}
		edit(s)
		c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: s}
	}
}

func number64(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }

// What a container's configuration asks for is what its app finds.
func TestFieldsOfConfigurationsAreHeeded(t *testing.T) {
	p := newPod(t)
	p.write(p.path("profile.json"), `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]}`)
	p.write(p.path("conditions.json"), `{"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": [
		{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 39, "includes": {"caps": ["CAP_CHOWN"]}},
		{"names": ["chmod"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5, "args": [{"index": 1, "value": 448, "op": "SCMP_CMP_EQ"}]},
		{"names": ["chmod"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": {"caps": ["CAP_CHOWN"]}},
		{"names": ["sync"], "action": "SCMP_ACT_KILL_PROCESS"}]}`)
	capabilities := "grep CapBnd /proc/self/status"
	for name, test := range map[string]struct {
		script string
		edit   func(*runtimeapi.ContainerConfig)
		want   string
	}{
		"environment": {"echo $FROM $A $HOSTNAME", func(c *runtimeapi.ContainerConfig) {
			c.Envs = []*runtimeapi.KeyValue{{Key: "FROM", Value: []byte("pod")}, {Key: "A", Value: []byte("1")}, {Key: "A", Value: []byte("2")}, {Key: "HOSTNAME", Value: []byte("own")}}
		}, "pod 2 own\n"},
		"environment with any names": {"tr '\\0' '\\n' </proc/$$/environ | grep -E 'dot|1st|a b' | sort", func(c *runtimeapi.ContainerConfig) {
			c.Envs = []*runtimeapi.KeyValue{{Key: "dot.dash-x", Value: []byte("1")}, {Key: "1st", Value: []byte("2")}, {Key: "a b/!", Value: []byte("3=4")}}
		}, "1st=2\na b/!=3=4\ndot.dash-x=1\n"},
		"environment of the pod alone": {"env | grep -vE '^(PATH|HOME|PWD|SHLVL)=' | sort", nil, "FROM=image\nHOSTNAME=" + p.config.Hostname + "\n"},
		"ports and pings of any user":  {"cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start ping_group_range", nil, "0\n0\t2147483647\n"},
		"folder that is missing":       {"pwd; ls -ld . | cut -c 1-10", func(c *runtimeapi.ContainerConfig) { c.WorkingDir = "/new/folder" }, "/new/folder\ndrwxr-xr-x\n"},
		"arguments":                    {"", func(c *runtimeapi.ContainerConfig) { c.Command, c.Args = []string{"echo", "a"}, []string{"b", "c"} }, "a b c\n"},
		"folder":                       {"pwd", func(c *runtimeapi.ContainerConfig) { c.WorkingDir = "/tmp" }, "/tmp\n"},
		"user by number":               {"id", secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.RunAsUser = number64(1000) }), "uid=1000(user) gid=1001(user) groups=2000(more)\n"},
		"number that the image calls root": {"id -u; id -g", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsGroup = number64(1234), number64(1234)
		}), "1234\n1234\n"},
		"unknown number and groups": {"id -u; id -g; id -G", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.RunAsGroup, s.SupplementalGroups = number64(7777), number64(8888), []int64{9999}
		}), "7777\n8888\n8888 9999\n"},
		"strict groups": {"id -G", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUsername, s.SupplementalGroups, s.SupplementalGroupsPolicy = "user", []int64{9999}, runtimeapi.SupplementalGroupsPolicy_Strict
		}), "1001 9999\n"},
		"root read-only":    {"touch /x 2>/dev/null || echo refused", secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.ReadonlyRootfs = true }), "refused\n"},
		"no new privileges": {"grep NoNewPrivs /proc/self/status", secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.NoNewPrivs = true }), "NoNewPrivs:\t1\n"},
		"no capabilities": {capabilities, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}
		}), "CapBnd:\t0000000000000000\n"},
		"one capability": {capabilities, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}}
		}), "CapBnd:\t0000000000001000\n"},
		"privileged": {"mount -t tmpfs none /tmp && echo mounted", secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }), "mounted\n"},
		"seccomp off": {"grep ^Seccomp: /proc/self/status", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
		}), "Seccomp:\t0\n"},
		"seccomp without a profile": {"grep ^Seccomp: /proc/self/status", secure(func(*runtimeapi.LinuxContainerSecurityContext) {}), "Seccomp:\t0\n"},
		"seccomp default": {"grep ^Seccomp: /proc/self/status", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
		}), "Seccomp:\t2\n"},
		"seccomp of a file": {"mkdir /x 2>&1; ls -d /bin", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: p.path("profile.json")}
		}), "mkdir: can't create directory '/x': Permission denied\n/bin\n"},
		"masked paths": {"cat /proc/interrupts /etc/passwd | wc -c; ls /tmp | wc -l", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.MaskedPaths = []string{"/proc/interrupts", "/etc/passwd", "/tmp", "/missing/path"}
		}), "0\n0\n"},
		"no masked and read-only paths": {"head -c 4 /proc/interrupts | wc -c; cat /proc/sys/kernel/shm_rmid_forced >/tmp/x && cat /tmp/x >/proc/sys/kernel/shm_rmid_forced && echo written", nil, "4\nwritten\n"},
		"read-only paths": {"for f in /proc/sys/kernel/shm_rmid_forced /tmp/x; do (echo 0 >$f) 2>/dev/null && echo written || echo refused; done", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.ReadonlyPaths = []string{"/proc/sys", "/tmp"}
		}), "refused\nrefused\n"},
		"seccomp with conditions": {"mkdir /x 2>&1; chmod 700 /tmp 2>&1; chmod 755 /tmp && echo chmod; (sync; exit) 2>/dev/null; echo $?", secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: p.path("conditions.json")}
		}), "mkdir: can't create directory '/x': Directory not empty\nchmod: /tmp: Input/output error\nchmod\n159\n"},
		"process 1 of its own namespace": {"echo $$; cat /proc/1/comm; [ $(ls -d /proc/[0-9]* | wc -l) -lt 5 ] && echo alone; (: >/proc/1/comm) && echo own", secure(func(*runtimeapi.LinuxContainerSecurityContext) {}), "1\nsh\nalone\nown\n"},
		"terminal":                       {"tty", func(c *runtimeapi.ContainerConfig) { c.Tty, c.Stdin = true, true }, "/dev/pts/0\r\n"},
		"device": {"echo x >/dev/zero2 && echo written", func(c *runtimeapi.ContainerConfig) {
			c.Devices = []*runtimeapi.Device{{HostPath: "/dev/zero", ContainerPath: "/dev/zero2", Permissions: "rwm"}}
		}, "written\n"},
		"device of the machine": {"(: >/kmsg) && echo opened", func(c *runtimeapi.ContainerConfig) {
			c.Devices = []*runtimeapi.Device{{HostPath: "/dev/kmsg", ContainerPath: "/kmsg"}}
		}, "opened\n"},
		"device node of a mount": {"(: >/kmsg) 2>&1 || true", func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: "/dev/kmsg", ContainerPath: "/kmsg"}}
		}, "sh: can't create /kmsg: Operation not permitted\n"},
	} {
		t.Run(name, func(t *testing.T) {
			sub := *p
			node := *p.node
			node.T, sub.node = t, &node
			if got := sub.do(test.script, test.edit); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestMountsOfTheHost(t *testing.T) {
	p := newPod(t)
	p.write(p.path("host/file"), "from the host\n")
	if err := os.Symlink("host", p.path("link")); err != nil {
		t.Fatal(err)
	}
	got := p.do("cat /data/file /one; echo new >/data/new; (echo no >/one) 2>/dev/null || echo refused", func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{
			{HostPath: p.path("link"), ContainerPath: "/data"},
			{HostPath: p.path("host/file"), ContainerPath: "/one", Readonly: true},
		}
	})
	if got != "from the host\nfrom the host\nrefused\n" {
		t.Errorf("%q", got)
	}
	if text, err := os.ReadFile(filepath.Join(p.path("host"), "new")); err != nil || string(text) != "new\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A volume with another one inside it, as Grafana's pods have, and what the host has stays.
func TestMountsInsideMounts(t *testing.T) {
	p := newPod(t)
	p.write(p.path("outer/file"), "outer\n")
	p.write(p.path("inner/file"), "inner\n")
	p.write(p.path("one"), "one\n")
	nested := func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{
			{HostPath: p.path("one"), ContainerPath: "/data/conf/one", Readonly: true},
			{HostPath: p.path("inner"), ContainerPath: "/data/conf"},
			{HostPath: p.path("outer"), ContainerPath: "/data", Readonly: true},
		}
	}
	got := p.do("cd /data; cat file conf/file conf/one; echo new >conf/new; (echo no >new) 2>/dev/null || echo refused; (echo no >conf/one) 2>/dev/null || echo refused", nested)
	if got != "outer\ninner\none\nrefused\nrefused\n" {
		t.Errorf("%q", got)
	}
	failing := p.script("true")
	failing.Command = []string{"/none"}
	nested(failing)
	id, err := p.createContainer(failing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("a missing program is started")
	}
	if left, err := os.ReadDir(p.path("state/mounts")); len(left) > 0 || err != nil {
		t.Errorf("mounts keep the volumes of containers that have ended: %v, %v", left, err)
	}
	if err := os.Symlink("/tmp", p.path("outer/link")); err != nil {
		t.Fatal(err)
	}
	led := p.script("true")
	led.Mounts = []*runtimeapi.Mount{{HostPath: p.path("outer"), ContainerPath: "/data"}, {HostPath: p.path("inner"), ContainerPath: "/data/link/x"}}
	if _, err := p.createContainer(led); err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("a mount over a link of the volume: %v", err)
	}
	if _, err := p.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"outer/file": "outer\n", "inner/file": "inner\n", "inner/new": "new\n", "one": "one\n"} {
		if text, err := os.ReadFile(p.path(file)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", file, text, err)
		}
	}
}

// share makes a folder with a tmpfs in it that is a shared mount, and two empty folders.
func (p *pod) share(name string) string {
	p.Helper()
	top := p.path(name)
	p.write(filepath.Join(top, "file"), "")
	err := errors.Join(unix.Mount(top, top, "", unix.MS_BIND, ""), unix.Mount("", top, "", unix.MS_SHARED, ""),
		os.Mkdir(filepath.Join(top, "in"), 0o755), os.Mkdir(filepath.Join(top, "out"), 0o755), os.Mkdir(filepath.Join(top, "sub"), 0o755),
		unix.Mount("tmpfs", filepath.Join(top, "sub"), "tmpfs", 0, ""))
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := unix.Unmount(top, unix.MNT_DETACH); err != nil {
			p.Error(err)
		}
	})
	return top
}

// Later mounts appear on the other side of a mount as its propagation says, alone, read-only and inside another mount.
// The host's stay when the container is removed.
func TestMountsPropagateAsAsked(t *testing.T) {
	p := newPod(t)
	const private, slave, both = runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
		runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	for i, test := range []struct {
		propagation  runtimeapi.MountPropagation
		readOnly     bool
		around       bool
		comes, leave bool
	}{
		{private, false, false, false, false},
		{slave, false, false, true, false},
		{both, false, false, true, true},
		{private, true, false, false, false},
		{slave, true, false, true, false},
		{both, true, false, true, true},
		{private, false, true, false, false},
		{slave, false, true, true, false},
		{both, false, true, true, true},
	} {
		top := p.share(fmt.Sprintf("shared-%d", i))
		config := p.script("mount -t tmpfs inside /a/data/out && echo ready; while [ ! -e /go/go ]; do sleep 0.05; done; grep -c '^later /a/data/in' /proc/mounts; touch /a/data/x 2>/dev/null && echo writes; exit 0")
		secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })(config)
		config.Mounts = []*runtimeapi.Mount{
			{HostPath: top, ContainerPath: "/a/data", Propagation: test.propagation, Readonly: test.readOnly},
			{HostPath: p.path(fmt.Sprintf("go-%d", i)), ContainerPath: "/go"}, // which is missing
		}
		if test.around {
			config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: p.path("around"), ContainerPath: "/a"})
		}
		id := p.startNew(config)
		surroundings.Eventually(t, "the container has mounted", func() bool { return p.output(config) == "ready\n" })
		mounts, err := os.ReadFile("/proc/self/mounts")
		if leaves := strings.Contains(string(mounts), "inside "+top+"/out"); leaves != test.leave || err != nil {
			t.Errorf("%+v: the container's mount appears on the host: %v", test, leaves)
		}
		if err := unix.Mount("later", filepath.Join(top, "in"), "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		p.write(p.path(fmt.Sprintf("go-%d/go", i)), "")
		p.awaitExit(id)
		want := "ready\n" + map[bool]string{false: "0\n", true: "1\n"}[test.comes] + map[bool]string{false: "writes\n"}[test.readOnly]
		if got := p.output(config); got != want {
			t.Errorf("%+v: %q, want %q", test, got, want)
		}
		if _, err := p.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if mounts, err = os.ReadFile("/proc/self/mounts"); err != nil {
			t.Error(err)
		}
		for _, host := range []string{"later " + top + "/in", "tmpfs " + top + "/sub"} {
			if !strings.Contains(string(mounts), host+" ") {
				t.Errorf("%+v: the removal has unmounted the host's %s", test, host)
			}
		}
	}
}

// Only what is recursively read-only is so with the mounts below, and what cannot be is refused.
func TestReadOnlyMounts(t *testing.T) {
	p := newPod(t)
	top := p.share("shared")
	write := "for f in /data/x /data/sub/x; do (echo >$f) 2>/dev/null && echo writes || echo refused; done"
	for recursive, want := range map[bool]string{false: "refused\nwrites\n", true: "refused\nrefused\n"} {
		got := p.do(write, func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{HostPath: top, ContainerPath: "/data", Readonly: true, RecursiveReadOnly: recursive}}
		})
		if got != want {
			t.Errorf("recursive %v: %q, want %q", recursive, got, want)
		}
	}
	got := p.do(write+"; ls /data/new", func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{
			{HostPath: top, ContainerPath: "/data", Readonly: true, RecursiveReadOnly: true},
			{HostPath: p.path("missing/folder"), ContainerPath: "/data/new"},
		}
	})
	if got != "refused\nrefused\n" {
		t.Errorf("with another one inside: %q", got)
	}
	if info, err := os.Stat(p.path("missing/folder")); err != nil || !info.IsDir() {
		t.Errorf("host path that was missing: %v", err)
	}
	r, err := p.Status(t.Context(), &runtimeapi.StatusRequest{})
	if err != nil || !r.RuntimeHandlers[0].Features.RecursiveReadOnlyMounts {
		t.Errorf("%v, %v", r.GetRuntimeHandlers(), err)
	}
	config := p.script("true")
	secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })(config)
	config.Mounts = []*runtimeapi.Mount{{HostPath: p.path("missing"), ContainerPath: "/data", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL}}
	if _, err := p.createContainer(config); err == nil || !strings.Contains(err.Error(), "not on a shared mount") {
		t.Errorf("bidirectional mount of a private one: %v", err)
	}
}

func TestAppThatUsesUpItsMemoryIsKilled(t *testing.T) {
	p := newPod(t)
	config := p.script("dd if=/dev/zero of=/dev/null bs=200M count=1")
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 32 << 20}}
	if s := p.awaitExit(p.startNew(config)); s.ExitCode != 137 || s.Reason != "OOMKilled" {
		t.Errorf("%v", s)
	}
}

// A client without input leaves the app's stdin open; the end of the first one's input is the app's.
func TestStdinOnce(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	for once, want := range map[bool]string{true: "one\nend\n", false: "one\ntwo\n"} {
		config := p.script("while read line; do echo $line; [ $line != two ] || exit 0; done; echo end")
		config.Stdin, config.StdinOnce = true, once
		id := p.startNew(config)
		attach := func(input string) {
			r, err := p.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: input != "", Stdout: true})
			if err != nil {
				t.Fatal(err)
			}
			c := dial(t, r.Url, execProtocol)
			c.open("error")
			if input != "" {
				in := c.open("stdin")
				defer in.Close()
				if _, err := io.WriteString(in, input); err != nil {
					t.Fatal(err)
				}
			}
			c.open("stdout")
			if input == "" {
				_ = c.Close()
			}
		}
		attach("")
		attach("one\n")
		surroundings.Eventually(t, "the app has read", func() bool { return strings.HasPrefix(p.output(config), "one\n") })
		if !once {
			attach("two\n")
		}
		p.awaitExit(id)
		if got := p.output(config); got != want {
			t.Errorf("once %v: %q, want %q", once, got, want)
		}
	}
}

// Swap is limited where the kernel accounts for it, and huge pages where there are such cgroups.
func TestSwapAndHugePages(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	limits := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 96 << 20}
	if _, err := os.Stat(swapFile(version("", p.cgroup))); err == nil { // version 2 has none in the root
		id := p.startNew(p.limited("sleep 1000", limits))
		file := swapFile(p.group(id, "apps/"+p.status(id).Metadata.Name))
		p.wantFile(file, version("100663296", "33554432"))
		for _, total := range []int64{192 << 20, 32 << 20} {
			changed := &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: total / 2, MemorySwapLimitInBytes: total}
			if _, err := p.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: changed}); err != nil {
				t.Fatal(err)
			}
			p.wantFile(file, fmt.Sprint(version(total, total/2)))
		}
	}
	pages := &runtimeapi.LinuxContainerResources{HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}}
	_, err := os.Stat(cgroupFile(version("", p.cgroup), "hugetlb", "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max"))
	if _, refused := p.createContainer(p.limited("true", pages)); (refused == nil) != (err == nil) {
		t.Errorf("huge pages: %v, and the machine has their cgroups: %v", refused, err)
	}
}

func TestHostsNetworkAndProcesses(t *testing.T) {
	n := newPod(t)
	config := n.sandboxConfig()
	config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE,
	}
	p := n.run(config)
	p.image = n.image
	own := ""
	for _, kind := range []string{"ipc", "net", "pid", "uts"} {
		link, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		own += link + "\n"
	}
	got := p.do("for n in ipc net pid uts; do ls -l /proc/self/ns/$n | grep -oE '[a-z]+:.[0-9]+.$'; done", func(c *runtimeapi.ContainerConfig) {
		c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: config.Linux.SecurityContext.NamespaceOptions,
		}}
	})
	if got != own {
		t.Errorf("%s, want %s", got, own)
	}
	status, err := p.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil || status.Status.Linux.Namespaces.Options.Network != runtimeapi.NamespaceMode_NODE ||
		status.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("%v, %v", status, err)
	}
	// A machine that was started again has none of the mounts.
	if err := unix.Unmount(p.path("state/sandboxes/"+p.id+"/uts"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	status, err = p.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil || status.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("%v, %v", status, err)
	}
}

func TestSandboxesAreListedAsTheyWereMade(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.sandboxConfig()
	config.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shm_rmid_forced": "1"}
	other := p.run(config)
	other.image = p.image
	if got := other.do("cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced", nil); got != "80\n1\n" {
		t.Errorf("sysctls %q", got)
	}
	list := func(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
		t.Helper()
		r, err := p.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		return r.Items
	}
	all := list(nil)
	if len(all) != 2 || all[0].Id != other.id || all[0].Annotations["note"] != "word by word\n" || all[0].Metadata.Name != config.Metadata.Name {
		t.Errorf("%v", all)
	}
	if _, err := p.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: other.id}); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]*runtimeapi.PodSandboxFilter{
		p.id: {State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		other.id: {
			State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
			LabelSelector: map[string]string{"pod": config.Metadata.Name},
		},
	} {
		if got := list(f); len(got) != 1 || got[0].Id != want {
			t.Errorf("%v: %v", f, got)
		}
	}
	if _, err := other.createContainer(other.script("true")); err == nil || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("container in a sandbox that is stopped: %v", err)
	}
}

// A privileged container with the host's /sys, or a part of it, gets no cgroups of its own there: the host's mount table
// stays as it was.
func TestSysOfTheHostGetsNoMounts(t *testing.T) {
	p := newPod(t)
	if err := unix.Mount("", "/sys", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	table := func() string {
		t.Helper()
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		var points []string
		for line := range strings.Lines(string(mounts)) {
			if point := strings.Fields(line)[4]; strings.HasPrefix(point, "/sys") {
				points = append(points, point)
			}
		}
		slices.Sort(points)
		return strings.Join(points, " ")
	}
	before := table()
	for _, path := range []string{"/sys", "/sys/fs", "/sys/fs/cgroup"} {
		config := p.script("ls /sys/fs/cgroup; sleep 1000")
		secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true })(config)
		config.Mounts = []*runtimeapi.Mount{{
			HostPath: path, ContainerPath: path, Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
		}}
		id := p.startNew(config)
		surroundings.Eventually(t, "the container lists the host's cgroups", func() bool { return p.output(config) != "" })
		if got := table(); got != before {
			t.Errorf("%s: the host has the mounts %s, had %s", path, got, before)
		}
		if _, err := p.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Error(err)
		}
		if got := table(); got != before {
			t.Errorf("%s: after the removal the host has the mounts %s, had %s", path, got, before)
		}
	}
}

// A port below those of every user is open to a user with the ambient capability, and to no other.
func TestAmbientCapabilities(t *testing.T) {
	p := newPod(t)
	config := p.sandboxConfig()
	config.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "1024"}
	low := p.run(config)
	low.image = p.image
	const script = `nc -l -p 80 </dev/null 2>&1 & until grep -q ':0050 ' /proc/net/tcp*; do kill -0 $! 2>/dev/null || exit 0; done
		kill $!; grep CapAmb /proc/self/status`
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, bounding, _ := strings.Cut(string(status), "\nCapBnd:\t")
	var all uint64
	if _, err := fmt.Sscanf(bounding, "%x", &all); err != nil {
		t.Fatal(err)
	}
	for want, capabilities := range map[string]*runtimeapi.Capability{
		"nc: bind: Permission denied\n": {AddCapabilities: []string{"NET_BIND_SERVICE"}},
		"CapAmb:\t0000000000000400\n":   {DropCapabilities: []string{"ALL"}, AddAmbientCapabilities: []string{"NET_BIND_SERVICE"}},
		fmt.Sprintf("CapAmb:\t%016x\n", all&^(1<<unix.CAP_NET_RAW)): {
			AddAmbientCapabilities: []string{"ALL"}, DropCapabilities: []string{"NET_RAW"},
		},
	} {
		got := low.do(script, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.RunAsUser, s.Capabilities = number64(1000), capabilities
		}))
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
