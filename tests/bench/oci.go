package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	fixture "kurma.io/stager/tests/daemon"
)

// oci drives one OCI runtime by its command line.
type oci struct {
	name   string   // and program
	global []string // arguments before the subcommand
	env    []string // beside the bench's
	host   *host
}

// A way is one of the ways to start a pod's apps with an OCI runtime.
type way struct {
	degree int  // runtimes running at once
	shared bool // the apps share the first one's PID, IPC and UTS namespaces
}

func (w way) String() string {
	if w.shared {
		return fmt.Sprintf("%d at once, namespaces shared", w.degree)
	}
	return fmt.Sprintf("%d at once, namespaces of their own", w.degree)
}

// An ociPod is a set of containers. Its cgroup, of the name id, has one for each app and one for the runtime's processes.
type ociPod struct {
	runtime *oci
	id      string
	dir     string
	way     way
	apps    []string // container names
}

// newPod writes the bundles of n containers that will run args.
func (o *oci) newPod(n int, w way, args ...string) (*ociPod, error) {
	p := &ociPod{runtime: o, id: o.host.id(), way: w}
	p.dir = filepath.Join(o.host.dir, p.id)
	for i := range n {
		app := fmt.Sprintf("%s-app%d", p.id, i)
		p.apps = append(p.apps, app)
		for _, dir := range []string{"rootfs", "upper", "work"} {
			if err := os.MkdirAll(filepath.Join(p.bundle(app), dir), 0o755); err != nil {
				return nil, err
			}
		}
		config, err := json.Marshal(p.config(i, args))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(p.bundle(app), "config.json"), config, 0o644); err != nil {
			return nil, err
		}
	}
	if err := fixture.MakeCgroup(p.id + "/runtime"); err != nil {
		return nil, err
	}
	if !w.shared {
		return p, nil
	}
	for _, kind := range []string{"pid", "ipc", "uts"} {
		if err := os.WriteFile(filepath.Join(p.dir, kind), nil, 0o644); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *ociPod) bundle(app string) string { return filepath.Join(p.dir, app) }

// command is the runtime's command line for a subcommand.
func (p *ociPod) command(args ...string) *exec.Cmd {
	all := append([]string{"--root", filepath.Join(p.dir, "state")}, p.runtime.global...)
	cmd := exec.Command(p.runtime.name, append(all, args...)...)
	cmd.Env = append(os.Environ(), p.runtime.env...)
	return cmd
}

// run runs a command in the pod's cgroup and waits for it.
func (p *ociPod) run(cmd *exec.Cmd) error {
	messages, err := os.CreateTemp(p.dir, "messages-")
	if err != nil {
		return err
	}
	defer messages.Close()
	cmd.Stdout, cmd.Stderr = messages, messages
	group, err := os.Open(filepath.Join(cgroupRoot, p.id, "runtime"))
	if err != nil {
		return err
	}
	defer group.Close()
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(messages.Name()) // the error is reported without it
		return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, said)
	}
	return nil
}

// mountRoot mounts the root of an app.
func (p *ociPod) mountRoot(app string) error {
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work",
		strings.Join(p.runtime.host.layers, ":"), p.bundle(app), p.bundle(app))
	if err := unix.Mount("overlay", p.bundle(app)+"/rootfs", "overlay", 0, options); err != nil {
		return fmt.Errorf("mount root of %s: %w", app, err)
	}
	return nil
}

// start brings all apps up and returns what that cost.
func (p *ociPod) start() (cost, error) {
	return measure(p.id, p.startAll)
}

func (p *ociPod) startAll() error {
	rest := p.apps
	if p.way.shared {
		if err := p.startFirst(); err != nil {
			return err
		}
		rest = rest[1:]
	}
	var group errgroup.Group
	group.SetLimit(p.way.degree)
	for _, app := range rest {
		group.Go(func() error { return p.startApp(app) })
	}
	return group.Wait()
}

func (p *ociPod) startApp(app string, args ...string) error {
	if err := p.mountRoot(app); err != nil {
		return err
	}
	args = append([]string{"run", "--detach", "--bundle", p.bundle(app)}, args...)
	return p.run(p.command(append(args, app)...))
}

// startFirst starts the app whose namespaces the others join.
func (p *ociPod) startFirst() error {
	pidFile := filepath.Join(p.dir, "first")
	if err := p.startApp(p.apps[0], "--pid-file", pidFile); err != nil {
		return err
	}
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		return err
	}
	for _, kind := range []string{"pid", "ipc", "uts"} {
		from := fmt.Sprintf("/proc/%s/ns/%s", pid, kind)
		if err := unix.Mount(from, filepath.Join(p.dir, kind), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin the %s namespace: %w", kind, err)
		}
	}
	return nil
}

// exec runs a command in the first app and waits for it.
func (p *ociPod) exec(args ...string) error {
	return p.command(append([]string{"exec", p.apps[0]}, args...)...).Run()
}

// first returns the process of the first app, which waits for a signal.
func (p *ociPod) first() (pid int, err error) {
	out, err := p.command("state", p.apps[0]).Output()
	if err != nil {
		return 0, err
	}
	var state struct{ Pid int }
	if err := json.Unmarshal(out, &state); err != nil {
		return 0, err
	}
	return state.Pid, awaitSigwait(state.Pid)
}

// end ends the first app, whose process is pid, with SIGTERM, and returns when its process, its cgroup, its state and its
// root are gone.
func (p *ociPod) end(pid int) error {
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	if err := p.run(p.command("kill", p.apps[0], "TERM")); err != nil {
		return err
	}
	ended := []unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	if n, err := unix.Poll(ended, 10_000); n != 1 {
		return fmt.Errorf("wait for the end of %s: %w", p.apps[0], errors.Join(err, os.ErrDeadlineExceeded))
	}
	return errors.Join(p.run(p.command("delete", p.apps[0])), p.unmount())
}

// close ends the apps and removes everything of the pod.
func (p *ociPod) close() error {
	// runc's delete mostly waits; the first app is the last to go, for it may be
	// the others' PID 1.
	var group errgroup.Group
	group.SetLimit(16)
	for _, app := range p.apps[1:] {
		group.Go(func() error { return p.run(p.command("delete", "--force", app)) })
	}
	errs := []error{group.Wait()}
	errs = append(errs, p.run(p.command("delete", "--force", p.apps[0])), p.unmount(), p.remove())
	return errors.Join(errs...)
}

// remove removes what is left of a pod whose apps are gone.
func (p *ociPod) remove() error {
	return errors.Join(fixture.RemoveCgroup(p.id), os.RemoveAll(p.dir))
}

func (p *ociPod) unmount() error {
	for _, app := range p.apps {
		if err := unix.Unmount(p.bundle(app)+"/rootfs", unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount root of %s: %w", app, err)
		}
	}
	if !p.way.shared {
		return nil
	}
	for _, kind := range []string{"pid", "ipc", "uts"} {
		if err := unix.Unmount(filepath.Join(p.dir, kind), unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unpin the %s namespace: %w", kind, err)
		}
	}
	return nil
}

// config is the configuration of the app of the given index: what an app
// gets from the stager by default.
func (p *ociPod) config(index int, args []string) *specs.Spec {
	capabilities := []string{
		"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_KILL", "CAP_MKNOD",
		"CAP_NET_RAW", "CAP_NET_BIND_SERVICE", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_SYS_CHROOT",
	}
	spec := &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Args: args,
			Env:  []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Cwd:  "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
		},
		Root:   &specs.Root{Path: "rootfs"},
		Mounts: usualMounts(),
		Linux: &specs.Linux{
			CgroupsPath: "/" + p.id + "/" + p.apps[index],
			MaskedPaths: []string{
				"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
			},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace},
				{Type: specs.NetworkNamespace, Path: p.runtime.host.netns},
				p.namespace(index, specs.PIDNamespace, "pid"),
				p.namespace(index, specs.IPCNamespace, "ipc"),
				p.namespace(index, specs.UTSNamespace, "uts"),
			},
		},
	}
	profile, err := seccomp.GetDefaultProfile(spec)
	if err != nil {
		panic(err) // the profile is compiled in
	}
	spec.Linux.Seccomp = profile
	return spec
}

func (p *ociPod) namespace(index int, kind specs.LinuxNamespaceType, file string) specs.LinuxNamespace {
	if p.way.shared && index > 0 {
		return specs.LinuxNamespace{Type: kind, Path: filepath.Join(p.dir, file)}
	}
	return specs.LinuxNamespace{Type: kind}
}

func usualMounts() []specs.Mount {
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
}
