package main

import (
	"bufio"
	"context"
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container"
	"kurma.io/stager/names"
	"kurma.io/stager/program"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/surroundings"
)

// This file plays the daemon: it starts this test program as the stager, in a new mount and network
// namespace. These tests need root.

// TestMain is also the stager, if it is called as a daemon calls the stager: without arguments, or
// by a call-in's name.
func TestMain(m *testing.M) {
	container.Init()
	if len(os.Args) == 1 && filepath.Base(os.Args[0]) == names.Program {
		if _, err := os.Stat(helperSocket + ".wanted"); err == nil {
			os.Exit(program.Main(withServer(parts())))
		}
	}
	if len(os.Args) == 1 || slices.Contains(names.CallIns(), filepath.Base(os.Args[0])) {
		main()
	}
	switch os.Args[1] {
	case "daemon":
		fmt.Fprintln(os.Stderr, "daemon:", beDaemon(os.Args[2]))
		os.Exit(1)
	case "probe":
		os.Exit(probe(os.Args[2], os.Args[3:]))
	}
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}

// testApp is an app of a test's pod and its image, whose root has busybox and,
// as /probe, this program.
type testApp struct {
	Name        string
	App         map[string]any // the app section but for user and group
	Annotations []map[string]string
}

// testPod is a pod that has been launched.
type testPod struct {
	t       *testing.T
	root    string            // the stager's root
	layers  map[string]string // the image's layer by each image's ID
	cgroup  string            // below every hierarchy
	bare    bool              // the cgroup is to have no controllers, on version 2
	removed bool              // the cgroup is, by removeAppsCgroups
	cmd     *exec.Cmd
	ready   *os.File
	output  map[string]*bufio.Reader // stdout of each app
	stderr  *os.File
}

var podCount atomic.Int64

// podOption changes a pod before it is launched: its manifest, or what is in
// its root.
type podOption func(p *testPod, document map[string]any)

func withPod(key string, value any) podOption {
	return func(_ *testPod, document map[string]any) { document["pod"].(map[string]any)[key] = value }
}

func withConfig(key string, value any) podOption {
	return func(_ *testPod, document map[string]any) { document["stagerConfig"].(map[string]any)[key] = value }
}

// withHostPID starts the pod in the host's PID namespace.
func withHostPID(p *testPod, document map[string]any) {
	withPod("isolators", []any{map[string]any{"name": "os/linux/namespaces", "value": map[string]string{"pid": "host"}}})(p, document)
}

// logged starts the pod without the pipe that is otherwise an app's stdout.
func logged(p *testPod, _ map[string]any) { p.output = nil }

// launch starts a pod and cleans up after it.
func launch(t *testing.T, apps []testApp, options ...podOption) *testPod {
	t.Helper()
	p := &testPod{t: t, root: filepath.Join(t.TempDir(), "root"), output: map[string]*bufio.Reader{}}
	p.cgroup = fmt.Sprintf("stager-test-%d-%d", os.Getpid(), podCount.Add(1))
	document := documentOf(apps)
	p.makeRoot(document)
	for _, option := range options {
		option(p, document)
	}
	p.write("manifest", document)
	p.makeCgroups()
	around, err := json.Marshal(daemon.Surroundings{Root: p.root, Bind: true, Layers: p.layers, Cgroup: p.cgroup})
	p.must(err)
	p.cmd = exec.Command("/proc/self/exe", "daemon", string(around))
	p.cmd.Env = []string{"HOME=/"}
	p.cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	p.stderr = p.create("stderr")
	p.cmd.Stderr = p.stderr
	p.passPipes(apps)
	p.must(surroundings.Start(p.cmd))
	t.Cleanup(func() { p.stop() })
	for _, f := range p.cmd.ExtraFiles {
		f.Close()
	}
	return p
}

// passPipes passes the ready pipe as descriptor 3, and the apps' stdout.
func (p *testPod) passPipes(apps []testApp) {
	pipe := func() *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { r.Close() })
		p.must(r.SetReadDeadline(time.Now().Add(5 * surroundings.Patience))) // for all that a test reads
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, w)
		return r
	}
	p.ready = pipe()
	for _, app := range apps {
		if p.output == nil {
			break
		}
		p.output[app.Name] = bufio.NewReader(pipe())
		p.cmd.Env = append(p.cmd.Env, fmt.Sprintf("%s%s%s=%d", names.StdioPrefix, app.Name, names.StdoutSuffix, 2+len(p.cmd.ExtraFiles)))
	}
}

func documentOf(apps []testApp) map[string]any {
	images, order, list := map[string]any{}, map[string]any{}, []any{}
	for i, app := range apps {
		id := fmt.Sprintf("sha512-%0128x", i+1)
		section := map[string]any{"user": "0", "group": "0"}
		for key, value := range app.App {
			section[key] = value
		}
		images[id] = map[string]any{
			"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/" + app.Name,
			"app": section, "annotations": app.Annotations,
		}
		order[app.Name] = []string{id}
		list = append(list, map[string]any{"name": app.Name, "image": map[string]any{"id": id}})
	}
	return map[string]any{
		"kurmaVersion": "0.4.1", "name": "demo", "images": images, "appImageOrder": order,
		"pod":          map[string]any{"acVersion": "0.8.11", "acKind": "PodManifest", "apps": list},
		"stagerConfig": map[string]any{},
	}
}

// makeRoot makes the stager's root from an image whose program is this one, with the
// apps' layer once for each of their images.
func (p *testPod) makeRoot(document map[string]any) {
	p.t.Helper()
	image, layer := filepath.Join(filepath.Dir(p.root), "image"), filepath.Join(filepath.Dir(p.root), "layer")
	for _, dir := range []string{filepath.Join(image, names.CallInDir), filepath.Join(layer, "bin"), filepath.Join(layer, "tmp")} {
		p.mkdir(dir)
	}
	self, err := os.Executable()
	p.must(err)
	p.command("cp", "/bin/busybox", layer+"/bin/busybox") // Debian's busybox-static
	p.command("cp", self, layer+"/probe")
	p.command("cp", self, image+names.Exec)
	for _, name := range []string{"sh", "sleep", "cat", "echo", "dd", "ls", "env", "id", "nc", "kill"} {
		p.must(os.Symlink("busybox", filepath.Join(layer, "bin", name)))
	}
	for _, name := range names.CallIns() {
		p.must(os.Symlink(names.Exec, filepath.Join(image, names.CallInDir, name)))
	}
	p.layers = make(map[string]string)
	for id := range document["images"].(map[string]any) {
		p.layers[id] = layer
	}
	p.must(daemon.Image{Root: image}.MakeRoot(p.root, slices.Collect(maps.Keys(p.layers))...))
	for _, dir := range []string{"tmp", "run"} {
		p.mkdir(filepath.Join(p.root, dir))
	}
}

func (p *testPod) mkdir(path string) { p.t.Helper(); p.must(os.MkdirAll(path, 0o755)) }

func (p *testPod) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *testPod) command(args ...string) {
	p.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (p *testPod) write(name string, document any) {
	p.t.Helper()
	text, err := json.Marshal(document)
	p.must(err)
	p.must(os.WriteFile(filepath.Join(p.root, name), text, 0o644))
}

func (p *testPod) create(name string) *os.File {
	p.t.Helper()
	f, err := os.Create(filepath.Join(filepath.Dir(p.root), name))
	p.must(err)
	p.t.Cleanup(func() { f.Close() })
	return f
}

// hierarchies returns the mounted cgroup file systems: one for each controller of version 1 and one
// of version 2, or only that one.
func hierarchies() []string {
	all, err := daemon.Hierarchies()
	if err != nil {
		panic(err)
	}
	return all
}

// makeCgroups makes the stager's cgroup in every hierarchy.
func (p *testPod) makeCgroups() {
	p.t.Helper()
	p.must(daemon.MakeCgroup(p.cgroup))
	p.checkCgroups(p.cgroup)
	if !p.bare || len(hierarchies()) > 1 {
		return
	}
	// A new cgroup gets none of its parent's controllers until they are enabled there.
	p.cgroup += "/below"
	p.must(os.Mkdir(filepath.Join(hierarchies()[0], p.cgroup), 0o755))
	p.checkCgroups(p.cgroup)
}

// checkCgroups removes a cgroup at the test's end. The stager must leave nothing in it.
func (p *testPod) checkCgroups(cgroup string) {
	for _, h := range hierarchies() {
		dir := filepath.Join(h, cgroup)
		p.t.Cleanup(func() {
			_ = os.Remove(filepath.Join(dir, names.LeafCgroup)) // the daemon's to remove, on version 2
			if err := os.Remove(dir); err != nil && !p.removed {
				p.t.Error("cgroup left behind:", err)
			}
		})
	}
}

// stop stops the pod and returns the stager's exit code.
func (p *testPod) stop() int {
	if p.cmd.ProcessState == nil {
		p.must(p.cmd.Process.Signal(unix.SIGTERM))
		late := time.AfterFunc(surroundings.Patience, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait() // the state has the outcome
		if !late.Stop() {
			p.t.Errorf("the stager does not end:\n%s", p.messages())
		}
	}
	if p.t.Failed() {
		p.t.Log(p.cmd.ProcessState, "\n"+p.messages())
	}
	return p.cmd.ProcessState.ExitCode()
}

// exits waits until the stager ends without a stop.
func (p *testPod) exits() int {
	var failed *exec.ExitError
	late := time.AfterFunc(surroundings.Patience, func() { _ = p.cmd.Process.Kill() })
	defer func() {
		if !late.Stop() {
			p.t.Errorf("the stager does not end:\n%s", p.messages())
		}
	}()
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &failed) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// isReady waits until the ready pipe is closed.
func (p *testPod) isReady() {
	p.t.Helper()
	if _, err := io.ReadAll(p.ready); err != nil {
		p.t.Fatal(err)
	}
}

// messages returns what the stager has written to stderr so far.
func (p *testPod) messages() string {
	text, err := os.ReadFile(p.stderr.Name())
	p.must(err)
	return string(text)
}

// line returns the next line of an app's output.
func (p *testPod) line(app string) string {
	p.t.Helper()
	text, err := p.output[app].ReadString('\n')
	if err != nil {
		p.t.Fatalf("output of %s ends after %q: %v\n%s", app, text, err, p.messages())
	}
	return strings.TrimSuffix(text, "\n")
}

// callIn runs a call-in as the daemon does and returns its output.
func (p *testPod) callIn(args ...string) string {
	p.t.Helper()
	out, err := p.callInCommand(args...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (p *testPod) callInCommand(args ...string) *exec.Cmd {
	enter := []string{"-t", fmt.Sprint(p.cmd.Process.Pid), "-m", "-n", "-r", names.CallInDir + "/" + args[0]}
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*surroundings.Patience)
	p.t.Cleanup(cancel)
	return exec.CommandContext(ctx, "nsenter", append(enter, args[1:]...)...)
}

// pidOf returns the PID of an app's main process in the test's namespace.
func (p *testPod) pidOf(app string) int {
	p.t.Helper()
	var status map[string]struct{ PID int }
	p.must(json.Unmarshal([]byte(p.callIn("status")), &status))
	return status[app].PID
}

// beDaemon makes the stager's surroundings, with a network device, and becomes the stager.
func beDaemon(surroundings string) error {
	var around daemon.Surroundings
	if err := json.Unmarshal([]byte(surroundings), &around); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1"}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.LinkAdd(wire), around.Enter()); err != nil {
		return err
	}
	return unix.Exec(names.Exec, []string{names.Exec}, os.Environ())
}
