package tests

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// addon is a stand-in for an add-on: it has the fields of a pod that the add-on's own manifest has, and makes the calls
// that the add-on's documents name. Capabilities that a test machine may lack are left out.
type addon struct {
	network, pids bool // the host's
	sysctls       map[string]string
	security      func(*runtimeapi.LinuxContainerSecurityContext)
	mounts        []*runtimeapi.Mount
	script        string             // fails if a call fails
	wants         []string           // words of the output
	onHost        func(p *pod) error // what the host sees while the stand-in runs
}

func privileged(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }

// adds returns an editor that adds capabilities to those of each container.
func adds(names ...string) func(*runtimeapi.LinuxContainerSecurityContext) {
	return func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: names}
	}
}

// unconfined has no seccomp filter.
func unconfined(s *runtimeapi.LinuxContainerSecurityContext) {
	s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

func mounted(host, target string, propagation runtimeapi.MountPropagation) *runtimeapi.Mount {
	return &runtimeapi.Mount{HostPath: host, ContainerPath: target, Propagation: propagation}
}

// exist returns a check of the host's files.
func exist(paths ...string) func(*pod) error {
	return func(*pod) error {
		var all error
		for _, path := range paths {
			_, err := os.Stat(path)
			all = errors.Join(all, err)
		}
		return all
	}
}

// runs returns a check that a command of the host succeeds.
func runs(command ...string) func(*pod) error {
	return func(*pod) error {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return errors.Join(err, errors.New(string(out)))
		}
		return nil
	}
}

// addons are the rows of the table in docs/kubernetes.md. Top is a shared mount of the host, and ownMounts the link of
// the host's mount namespace, which is the test's.
func addons(p *pod, top, ownMounts string) map[string]addon {
	const private, slave, both = runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
		runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	nsenter := fmt.Sprintf("nsenter --mount=/host/proc/%d/ns/mnt --net=/host/proc/%[1]d/ns/net readlink /proc/self/ns/mnt", os.Getpid())
	host := mounted("/", "/host", private)
	readOnly := func(m *runtimeapi.Mount) *runtimeapi.Mount { m.Readonly = true; return m }
	return map[string]addon{
		"kube-proxy": {
			network: true, security: privileged, mounts: []*runtimeapi.Mount{host, readOnly(mounted("/lib", "/lib/modules", private))},
			script: `chroot /host /usr/sbin/iptables -t nat -N ADDON-PROXY
				chroot /host /usr/sbin/nft add table ip addon-proxy
				echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
				ls /lib/modules >/dev/null`,
			onHost: func(p *pod) error {
				return errors.Join(runs("iptables", "-t", "nat", "-X", "ADDON-PROXY")(p), runs("nft", "delete", "table", "ip", "addon-proxy")(p))
			},
		},
		"Calico": {
			network: true, security: privileged, mounts: []*runtimeapi.Mount{
				host, mounted(p.path("cni/bin"), "/host-cni", private), mounted(top+"/in", "/sys/fs/bpf", both),
			},
			script: `cp /bin/busybox /host-cni/calico
				mount -t bpf calico-bpf /sys/fs/bpf
				ip route add blackhole 198.51.100.0/24
				chroot /host /usr/sbin/iptables -N ADDON-CALICO`,
			onHost: func(p *pod) error {
				return errors.Join(exist(p.path("cni/bin/calico"))(p), runs("ip", "route", "del", "blackhole", "198.51.100.0/24")(p),
					runs("iptables", "-X", "ADDON-CALICO")(p), runs("grep", "-q", "^calico-bpf "+top+"/in bpf", "/proc/mounts")(p))
			},
		},
		"Cilium": {
			network: true, mounts: []*runtimeapi.Mount{host, mounted("/proc", "/host/proc", private), mounted(p.path("bpf"), "/sys/fs/bpf", slave)},
			security: adds("NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_MODULE", "SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", "BPF", "PERFMON"),
			script:   "/addon pin /sys/fs/bpf\n" + nsenter,
			wants:    []string{ownMounts}, onHost: exist(p.path("bpf/map"), p.path("bpf/program")),
		},
		"Flannel": {
			network: true, security: adds("NET_ADMIN", "NET_RAW"), mounts: []*runtimeapi.Mount{host, mounted(p.path("flannel"), "/run/flannel", private)},
			script: `/addon vxlan flannel.7
				chroot /host /usr/sbin/iptables -N ADDON-FLANNEL
				echo FLANNEL_MTU=1450 >/run/flannel/subnet.env`,
			onHost: func(p *pod) error {
				return errors.Join(runs("ip", "link", "del", "flannel.7")(p), runs("iptables", "-X", "ADDON-FLANNEL")(p), exist(p.path("flannel/subnet.env"))(p))
			},
		},
		"node-exporter": {
			network: true, pids: true, mounts: []*runtimeapi.Mount{readOnly(mounted("/", "/host/root", slave))},
			security: func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser, s.ReadonlyRootfs = number64(65534), true
				s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}
			},
			script: `cat /host/root/proc/loadavg /host/root/proc/1/stat /proc/1/stat >/dev/null
				df /host/root >/dev/null
				ls /host/root/sys/class/net`,
			wants: []string{"lo"},
		},
		"Longhorn": {
			pids: true, security: privileged, mounts: []*runtimeapi.Mount{
				mounted("/dev", "/host/dev", private), mounted("/proc", "/host/proc", private), mounted(top, "/var/lib/longhorn", both),
			},
			script: nsenter + "\nls /host/dev/null\nmount -t tmpfs longhorn /var/lib/longhorn/out",
			wants:  []string{ownMounts}, onHost: runs("grep", "-q", "^longhorn "+top+"/out ", "/proc/mounts"),
		},
		"CSI drivers": {
			security: privileged, mounts: []*runtimeapi.Mount{
				mounted("/dev", "/dev", private), mounted(top, "/var/lib/kubelet", both), mounted(top+"/sub", "/var/lib/kubelet/plugins", private),
			},
			script: `mkdir /var/lib/kubelet/volume
				mount -t tmpfs csi /var/lib/kubelet/volume
				touch /var/lib/kubelet/plugins/csi.sock
				ls /dev/kmsg`,
			onHost: func(p *pod) error {
				return errors.Join(runs("grep", "-q", "^csi "+top+"/volume ", "/proc/mounts")(p), exist(top+"/sub/csi.sock")(p))
			},
		},
		"node-problem-detector": {
			security: privileged, mounts: []*runtimeapi.Mount{readOnly(mounted("/dev/kmsg", "/dev/kmsg", private)), readOnly(mounted(p.path("log"), "/var/log", private))},
			script: `exec 3</dev/kmsg # a read fails where the kernel has overwritten the record
				for i in 1 2 3 4 5 6 7 8 9; do dd bs=8192 count=1 <&3 2>/dev/null | grep '^[0-9]*,' && break; done
				cat /var/log/syslog`,
			wants: []string{",", "a line of the host"},
		},
		"Falco": {
			security: privileged, mounts: []*runtimeapi.Mount{readOnly(mounted("/proc", "/host/proc", private)), readOnly(mounted("/etc", "/host/etc", private))},
			script: `/addon trace sys_enter
				cat /host/proc/1/cmdline /host/etc/passwd >/dev/null`,
		},
		"fluent-bit": {
			mounts: []*runtimeapi.Mount{readOnly(mounted(p.path("log"), "/var/log", private)), mounted(p.path("positions"), "/buffers", private)},
			script: `cat /var/log/containers/web.log
				echo 42 >/buffers/tail.db`,
			wants: []string{"stdout F hello"}, onHost: exist(p.path("positions/tail.db")),
		},
		"ingress-nginx": {
			sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "1024"}, mounts: []*runtimeapi.Mount{readOnly(mounted(p.path("granted"), "/granted", private))},
			security: func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser, s.RunAsGroup = number64(101), number64(82)
				s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"}}
				s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
			},
			script: `/granted/nc -l -p 443 </dev/null &
				until grep ':01BB ' /proc/net/tcp*; do kill -0 $!; done
				kill $!`,
			wants: []string{":01BB "},
		},
		"rootless build": {
			security: func(s *runtimeapi.LinuxContainerSecurityContext) {
				unconfined(s)
				s.RunAsUser = number64(1000)
			},
			script: `unshare -Urm sh -c 'mount -t tmpfs build /tmp && mkdir /tmp/root && mount --bind /bin /tmp/root && id -u && ls /tmp/root/sh'`,
			wants:  []string{"0\n", "/tmp/root/sh"},
		},
		"privileged build": {
			security: privileged, mounts: []*runtimeapi.Mount{mounted(p.path("build"), "/var/lib/docker", private)},
			script: `cd /var/lib/docker
				mkdir low work all
				touch low/base
				mount -t tmpfs none work
				mkdir work/u work/w
				mount -t overlay -o lowerdir=low,upperdir=work/u,workdir=work/w overlay all
				ls all
				g=/sys/fs/cgroup; [ ! -d $g/memory ] || g=$g/memory
				mkdir $g/addon-build
				rmdir $g/addon-build
				unshare -m -p -f sh -c 'mount -t proc proc /proc && echo inner $$'`,
			wants: []string{"base\n", "inner 1\n"},
		},
	}
}

// The table of docs/kubernetes.md.
func TestAddons(t *testing.T) {
	p := newPod(t)
	ownMounts, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	p.prepareAddons()
	for name, a := range addons(p, p.share("shared"), ownMounts) {
		t.Run(name, func(t *testing.T) {
			sub := *p
			node := *p.node
			node.T, sub.node = t, &node
			sub.runAddon(a)
		})
	}
}

// The documented table has the rows of the test.
func TestAddonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Add-ons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := addons(&pod{node: new(node)}, "", "")
	for name := range all {
		if !strings.Contains(section, "\n| "+name+" | ") {
			t.Errorf("docs/kubernetes.md has no row %s", name)
		}
	}
	if rows := strings.Count(section, "\n| ") - 2; rows != len(all) {
		t.Errorf("docs/kubernetes.md has %d rows for %d add-ons", rows, len(all))
	}
}

// prepareAddons makes what the host of the stand-ins has.
func (p *pod) prepareAddons() {
	p.Helper()
	p.write(p.path("log/syslog"), "a line of the host\n")
	p.write(p.path("log/pods/web/0.log"), "2026-01-01T00:00:00Z stdout F hello\n")
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		p.Fatal(err)
	}
	p.write(p.path(addonProgram), string(program))
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		p.Fatal(err)
	}
	p.write(p.path("granted/nc"), string(box))
	grant := binary.LittleEndian.AppendUint32(nil, 0x02000001) // VFS_CAP_REVISION_2, effective (capabilities(7))
	for _, word := range []uint32{1 << unix.CAP_NET_BIND_SERVICE, 0, 0, 0} {
		grant = binary.LittleEndian.AppendUint32(grant, word)
	}
	err = errors.Join(
		os.Mkdir(p.path("log/containers"), 0o755), os.Symlink("../pods/web/0.log", p.path("log/containers/web.log")),
		os.Chmod(p.path(addonProgram), 0o755), os.Chmod(p.path("granted/nc"), 0o755),
		unix.Setxattr(p.path("granted/nc"), "security.capability", grant, 0),
		os.Mkdir(p.path("bpf"), 0o755), unix.Mount("bpf", p.path("bpf"), "bpf", 0, ""),
	)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := unix.Unmount(p.path("bpf"), unix.MNT_DETACH); err != nil {
			p.Error(err)
		}
	})
}

// runAddon runs a stand-in in a pod of its own, and looks at the host before its container ends.
func (p *pod) runAddon(a addon) {
	p.Helper()
	config := p.sandboxConfig()
	config.Linux.Sysctls = a.sysctls
	options := config.Linux.SecurityContext.NamespaceOptions
	if a.network {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	if a.pids {
		options.Pid = runtimeapi.NamespaceMode_NODE
	}
	own := p.run(config)
	own.image = p.image
	c := own.script("set -e\n" + a.script + "\necho all calls; until [ -e /end/end ]; do sleep 0.05; done")
	security := &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: options}
	if a.security != nil {
		a.security(security)
	}
	c.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: security}
	ends := p.path("ends/" + filepath.Base(config.Hostname))
	c.Mounts = append(a.mounts, mounted(ends, "/end", runtimeapi.MountPropagation_PROPAGATION_PRIVATE),
		&runtimeapi.Mount{HostPath: p.path(addonProgram), ContainerPath: "/addon", Readonly: true})
	id := own.startNew(c)
	own.awaitLine(id, c, "all calls\n")
	for _, want := range a.wants {
		if got := own.output(c); !strings.Contains(got, want) {
			p.Errorf("%q, want %q", got, want)
		}
	}
	if a.onHost != nil {
		if err := a.onHost(own); err != nil {
			p.Error(err)
		}
	}
	p.write(filepath.Join(ends, "end"), "")
	own.awaitExit(id)
}

// awaitLine waits until a container has written a text, and fails if the container ends first.
func (p *pod) awaitLine(id string, c *runtimeapi.ContainerConfig, text string) {
	p.Helper()
	for !strings.Contains(p.output(c), text) {
		if s := p.status(id); s.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			p.Fatalf("the container ended with %d:\n%s", s.ExitCode, p.output(c))
		}
	}
}
