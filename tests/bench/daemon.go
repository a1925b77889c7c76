package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	fixture "kurma.io/stager/tests/daemon"
)

// planVariable carries a plan, in JSON, to the process that becomes a stager.
const planVariable = "STAGER_BENCH_PLAN"

// A plan is what a process does on its way to becoming the stager of a pod.
type plan struct {
	fixture.Surroundings
	Exec    []string // of the stager
	Env     []string // of the stager, beside HOME
	Control int      // a descriptor: a byte goes out when all is prepared, and one comes in for the exec
}

// daemon plays the Kurma daemon's part.
type daemon struct {
	host  *host
	image fixture.Image
	stdin bool // the apps' stdin is open
}

// newDaemon unpacks the stager image.
func newDaemon(h *host, bin, aci string) (*daemon, error) {
	dir := filepath.Join(h.dir, "stager")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	image, err := fixture.Unpack(filepath.Join(bin, "launcher"), aci, dir)
	return &daemon{host: h, image: image}, err
}

// A pod is a stager that runs.
type pod struct {
	host   *host
	image  fixture.Image
	cgroup string
	root   string
	cmd    *exec.Cmd
	ready  *os.File // read end; the stager closes the other when the apps run
	start  cost
}

// start prepares a stager of n apps that run args, executes it and waits until
// it is ready. The caller closes the pod.
func (d *daemon) start(n int, config string, args ...string) (*pod, error) {
	p := &pod{host: d.host, image: d.image, cgroup: d.host.id()}
	p.root = filepath.Join(d.host.dir, p.cgroup)
	if err := d.prepareRoot(p.root, n, config, args); err != nil {
		return nil, err
	}
	control, err := p.fork()
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	defer control.Close()
	if err := p.boot(control); err != nil {
		said, _ := os.ReadFile(p.log()) // the error is reported without it
		return nil, errors.Join(fmt.Errorf("start a stager of %d apps: %w: %s", n, err, said), p.close())
	}
	return p, nil
}

// boot lets the prepared process execute the stager, and measures until it is
// ready.
func (p *pod) boot(control *os.File) error {
	one := make([]byte, 1)
	if _, err := io.ReadFull(control, one); err != nil {
		return fmt.Errorf("wait for the stager's surroundings: %w", err)
	}
	var err error
	p.start, err = measure(p.cgroup, func() error {
		if _, err := control.Write(one); err != nil {
			return fmt.Errorf("let the stager go: %w", err)
		}
		if _, err := io.ReadAll(p.ready); err != nil {
			return fmt.Errorf("wait until the stager is ready: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Not processes: the kernel takes the square of a pod's apps to list them.
	if supervisors, err := children(p.cmd.Process.Pid); err != nil || len(supervisors) == 0 {
		return errors.Join(errors.New("the stager ended instead of becoming ready"), err)
	}
	return nil
}

func (p *pod) log() string { return p.root + ".log" }

// fork starts the process that will be the stager, and returns the other end
// of its plan's Control.
func (p *pod) fork() (*os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.ready = read
	defer write.Close()
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := fixture.MakeCgroup(p.cgroup); err != nil {
		return nil, err
	}
	surroundings := fixture.Surroundings{Root: p.root, Bind: true, Layers: p.host.layersByID(), Cgroup: p.cgroup}
	text, err := json.Marshal(plan{Surroundings: surroundings, Exec: p.image.Exec, Env: p.image.Env, Control: 5})
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Env = []string{"HOME=/", planVariable + "=" + string(text)}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Descriptor 3 must be open: the read end of the ready pipe is not used as a ready
	// descriptor. The process closes it before the exec.
	p.cmd.ExtraFiles = []*os.File{read, write, theirs}
	p.cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Setsid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("fork a stager: %w", err)
	}
	return ours, nil
}

// stop ends the pod as the daemon does, and waits.
func (p *pod) stop() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		said, _ := os.ReadFile(p.log()) // the error is reported without it
		return fmt.Errorf("stop a stager: %w: %s", err, said)
	}
	return nil
}

// close stops the pod and removes everything of it.
func (p *pod) close() error {
	errs := []error{p.stop()}
	if p.ready != nil {
		p.ready.Close()
	}
	return errors.Join(append(errs, fixture.RemoveCgroup(p.cgroup), os.RemoveAll(p.root), os.Remove(p.log()))...)
}

// prepareRoot writes the stager's image and the manifest of its pod.
func (d *daemon) prepareRoot(root string, n int, config string, args []string) error {
	if err := d.image.MakeRoot(root, slices.Collect(maps.Keys(d.host.layersByID()))...); err != nil {
		return err
	}
	for _, dir := range []string{"tmp", "run", "var/log"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	manifest, err := json.Marshal(d.manifest(n, config, args))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "manifest"), manifest, 0o600)
}

// manifest is a Stager Manifest of n apps on the same layers.
func (d *daemon) manifest(n int, config string, args []string) map[string]any {
	type object = map[string]any
	var ids []string
	images := object{}
	for i, layer := range d.host.layers {
		id := filepath.Base(layer)
		ids = append(ids, id)
		images[id] = object{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": fmt.Sprintf("bench/layer%d", i)}
	}
	var apps []object
	order := object{}
	for i := range n {
		name := fmt.Sprintf("app%d", i)
		order[name] = ids
		app := object{
			"name": name, "image": object{"id": ids[0]},
			"app": object{"exec": args, "user": "0", "group": "0"},
		}
		if d.stdin {
			app["annotations"] = []object{{"name": names.StdinAnnotation, "value": "stream"}}
		}
		apps = append(apps, app)
	}
	return object{
		"kurmaVersion": "0.4.1", "name": "bench", "images": images, "appImageOrder": order,
		"pod":          object{"acVersion": "0.8.11", "acKind": "PodManifest", "apps": apps},
		"stagerConfig": json.RawMessage(config),
	}
}

// The configurations of the stager by how it starts apps.
const (
	directConfig       = `{"runtime": "direct"}`
	libcontainerConfig = `{"runtime": "libcontainer"}`
)

// costReady starts a pod of n apps, ends it, and returns what the start cost.
func (d *daemon) costReady(n int, config string) (cost, error) {
	p, err := d.start(n, config, "/bin/pause")
	if err != nil {
		return cost{}, err
	}
	return p.start, p.close()
}

// enter runs a call-in the way the daemon does: in the stager's mount and
// network namespace and in its root, with settings on descriptor 3.
func (p *pod) enter(settings string, args ...string) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	process, err := p.startCallIn(settings, args, null, null, null)
	if err != nil {
		return err
	}
	state, err := process.Wait()
	if err != nil {
		return err
	}
	if !state.Success() {
		return fmt.Errorf("run %s: %s", strings.Join(args, " "), state)
	}
	return nil
}

// startCallIn starts a call-in with the three streams, which it leaves to the caller.
func (p *pod) startCallIn(settings string, args []string, streams ...*os.File) (process *os.Process, err error) {
	t := &thread{work: make(chan func())}
	go t.serve()
	defer close(t.work)
	err = t.do(func() error {
		if err := p.join(); err != nil {
			return err
		}
		process, err = forkCallIn(settings, args, streams)
		return err
	})
	return process, err
}

func forkCallIn(settings string, args []string, streams []*os.File) (*os.Process, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	process, err := os.StartProcess(args[0], args, &os.ProcAttr{
		Env: []string{"HOME=/"}, Files: append(streams, read), Dir: "/",
	})
	read.Close()
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	_, err = io.WriteString(write, settings)
	if err := errors.Join(err, write.Close()); err != nil {
		return nil, fmt.Errorf("pass the settings: %w", err)
	}
	return process, nil
}

// join moves the calling thread into the stager's namespaces and root.
func (p *pod) join() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the thread's root: %w", err)
	}
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", p.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer root.Close()
	// The network first: after the mount namespace /proc is another.
	for _, ns := range []struct {
		kind string
		flag int
	}{{"net", unix.CLONE_NEWNET}, {"mnt", unix.CLONE_NEWNS}} {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", p.cmd.Process.Pid, ns.kind))
		if err != nil {
			return err
		}
		err = unix.Setns(int(file.Fd()), ns.flag)
		file.Close()
		if err != nil {
			return fmt.Errorf("enter the stager's %s namespace: %w", ns.kind, err)
		}
	}
	if err := errors.Join(unix.Fchdir(int(root.Fd())), unix.Chroot(".")); err != nil {
		return fmt.Errorf("enter the stager's root: %w", err)
	}
	return nil
}
