package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/daemon"
)

// daemonPlanVariable is the variable with the path of a daemonPlan, in JSON, for the process that
// becomes a stager.
const daemonPlanVariable = "STAGER_TESTS_DAEMON"

// daemonPlan replaces the launcher's decisions, for tests of what the launcher never does:
// descriptors of older daemons, a stager in a chroot, unusual roots.
type daemonPlan struct {
	daemon.Surroundings
	Exec  []string // of the stager
	Env   []string // of the stager, beside HOME
	Close []int    // descriptors that the stager does not get
}

// direct is a stager that was started without the launcher.
type direct struct {
	*machine
	plan  daemonPlan
	cmd   *exec.Cmd
	ready *os.File // the read end of the ready pipe
	log   string   // of stdout and stderr
	ended chan struct{}

	output *os.File // takes the place of the log, where set
}

// document is a Stager Manifest.
type document map[string]any

// documentOf returns the manifest of a pod whose apps have these layers, given by their folders, the
// topmost first.
func documentOf(doc podDoc, layers ...string) document {
	images, order := map[string]any{}, map[string]any{}
	var ids []string
	for i, layer := range layers {
		ids = append(ids, layerID(layer))
		images[ids[i]] = map[string]any{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": fmt.Sprintf("tests/layer%d", i)}
	}
	for i := range doc.Apps {
		order[doc.Apps[i].Name] = ids
		doc.Apps[i].Image.ID = ids[0]
	}
	return document{
		"kurmaVersion": "0.4.1", "name": "direct", "pod": doc, "images": images,
		"appImageOrder": order, "stagerConfig": map[string]any{"gracePeriod": "1s"},
	}
}

// busyboxLayer returns the root of the busybox image.
func (b *machine) busyboxLayer() string {
	return filepath.Join(suite.store, suite.ids["busybox"], "rootfs")
}

// direct prepares a stager's root with a manifest, which is a document or text. The layers are folders
// named by their image IDs.
func (b *machine) direct(manifest any, layers ...string) *direct {
	b.t.Helper()
	root, folders := filepath.Join(b.dir, "stager-root"), make(map[string]string)
	for _, layer := range layers {
		folders[layerID(layer)] = layer
	}
	if err := suite.stager.MakeRoot(root, slices.Collect(maps.Keys(folders))...); err != nil {
		b.t.Fatal(err)
	}
	path := b.write("manifest", manifest)
	if err := os.Rename(path, filepath.Join(root, "manifest")); err != nil {
		b.t.Fatal(err)
	}
	surroundings := daemon.Surroundings{Root: root, Layers: folders, Cgroup: b.cgroup + "/direct"}
	return &direct{machine: b, plan: daemonPlan{Surroundings: surroundings, Exec: suite.stager.Exec, Env: suite.stager.Env}}
}

func (b *machine) copyFile(from, to string) {
	b.t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// layerID returns the image ID of a layer: the name of its folder, or of the folder's parent if the
// folder is a root file system in an image store.
func layerID(dir string) string {
	if base := filepath.Base(dir); base != "rootfs" {
		return base
	}
	return filepath.Base(filepath.Dir(dir))
}

// start executes the stager with the files as descriptors from 3 on; for nil the descriptor is closed.
// d.ready, if set, is the pipe whose write end is among the files.
func (d *direct) start(files ...*os.File) {
	d.t.Helper()
	if err := daemon.MakeCgroup(d.plan.Cgroup); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := daemon.RemoveCgroup(d.cgroup); err != nil {
			d.t.Error(err)
		}
	})
	for i, f := range files {
		if f == nil {
			d.plan.Close = append(d.plan.Close, i+3)
			files[i] = os.Stdin
		}
	}
	d.log = filepath.Join(d.dir, "direct.log")
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	d.cmd = exec.Command("/proc/self/exe")
	d.cmd.Env = []string{daemonPlanVariable + "=" + d.write("plan", d.plan)}
	if d.output != nil {
		log = d.output
	}
	d.cmd.Stdout, d.cmd.Stderr, d.cmd.ExtraFiles = log, log, files
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Setsid: true}
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.ended = make(chan struct{})
	go func() {
		_ = d.cmd.Wait() // ProcessState has the outcome
		close(d.ended)
	}()
	d.t.Cleanup(d.remove)
}

// startReady starts the stager with a ready pipe as descriptor 4 and waits for
// its end of file.
func (d *direct) startReady() {
	d.t.Helper()
	read, write := d.pipe()
	d.ready = read
	d.start(nil, write)
	write.Close()
	d.waitReady()
}

// pipe makes a pipe whose ends are closed at the test's end.
func (b *machine) pipe() (read, write *os.File) {
	b.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// waitReady waits for end of file on the ready pipe. Only the stager may have the write end by now.
func (d *direct) waitReady() {
	d.t.Helper()
	if err := d.ready.SetReadDeadline(time.Now().Add(patience)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := io.ReadAll(d.ready); err != nil {
		d.t.Fatalf("wait for end of file on the ready pipe: %v\n%s", err, d.messages())
	}
	d.note()
	if len(d.processes()) < 2 {
		d.t.Fatalf("the stager is not up:\n%s", d.messages())
	}
}

// messages returns what the stager has written.
func (d *direct) messages() string {
	data, err := os.ReadFile(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(data)
}

// wait waits for the stager's end and returns its exit status, -1 for a signal.
func (d *direct) wait() int {
	d.t.Helper()
	select {
	case <-d.ended:
		return d.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		d.t.Fatalf("the stager does not end\n%s", d.messages())
		return -1
	}
}

// stop sends SIGTERM and waits for the stager's end.
func (d *direct) stop() {
	d.t.Helper()
	d.note()
	if err := d.cmd.Process.Signal(unix.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	if code := d.wait(); code != 0 {
		d.t.Errorf("the stager's exit status is %d\n%s", code, d.messages())
	}
}

// appLog returns the log of an app, in the CRI format.
func (d *direct) appLog(app string) string {
	files, _ := filepath.Glob(filepath.Join(d.plan.Root, suite.stager.LogDir, app, "*"))
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			d.t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// sees waits until an app's log holds the text.
func (d *direct) sees(app, text string) {
	d.t.Helper()
	eventually(d.t, fmt.Sprintf("%q in the log of %s", text, app), func() bool { return strings.Contains(d.appLog(app), text) })
}

// remove kills the stager if it still runs, checks that no process is left, and removes what a daemon
// has to remove.
func (d *direct) remove() {
	_ = d.cmd.Process.Kill()
	d.wait()
	d.checkProcesses()
	if err := os.RemoveAll(d.plan.Root); err != nil {
		d.t.Errorf("remove the stager's root: %v", err)
	}
}

// becomeStager enters the surroundings of a stager, in the namespaces of this process, and executes
// the stager as a Kurma daemon does.
func becomeStager(plan string) error {
	text, err := os.ReadFile(plan)
	if err != nil {
		return err
	}
	var p daemonPlan
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if err := p.Enter(); err != nil {
		return err
	}
	for _, fd := range p.Close {
		_ = unix.Close(fd) // the Go runtime may have used it for itself
	}
	unix.Umask(0o022)
	return unix.Exec(p.Exec[0], p.Exec, append([]string{"HOME=/root"}, p.Env...))
}
