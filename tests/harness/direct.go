package harness

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

// Direct is a stager that was started without the launcher.
type Direct struct {
	*Machine
	Plan  daemonPlan
	Cmd   *exec.Cmd
	Ready *os.File // the read end of the ready pipe
	log   string   // of stdout and stderr
	ended chan struct{}

	Output *os.File // takes the place of the log, where set
}

// Document is a Stager Manifest.
type Document map[string]any

// DocumentOf returns the manifest of a pod whose apps have these layers, given by their folders, the
// topmost first.
func DocumentOf(doc PodDoc, layers ...string) Document {
	images, order := map[string]any{}, map[string]any{}
	var ids []string
	for i, layer := range layers {
		ids = append(ids, LayerID(layer))
		images[ids[i]] = map[string]any{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": fmt.Sprintf("tests/layer%d", i)}
	}
	for i := range doc.Apps {
		order[doc.Apps[i].Name] = ids
		doc.Apps[i].Image.ID = ids[0]
	}
	return Document{
		"kurmaVersion": "0.4.1", "name": "direct", "pod": doc, "images": images,
		"appImageOrder": order, "stagerConfig": map[string]any{"gracePeriod": "1s"},
	}
}

// BusyboxLayer returns the root of the busybox image.
func (b *Machine) BusyboxLayer() string {
	return filepath.Join(b.suite.Store, b.suite.IDs["busybox"], "rootfs")
}

// Direct prepares a stager's root with a manifest, which is a document or text. The layers are folders
// named by their image IDs.
func (b *Machine) Direct(manifest any, layers ...string) *Direct {
	b.T.Helper()
	root, folders := filepath.Join(b.Dir, "stager-root"), make(map[string]string)
	for _, layer := range layers {
		folders[LayerID(layer)] = layer
	}
	if err := b.suite.Stager.MakeRoot(root, slices.Collect(maps.Keys(folders))...); err != nil {
		b.T.Fatal(err)
	}
	path := b.Write("manifest", manifest)
	if err := os.Rename(path, filepath.Join(root, "manifest")); err != nil {
		b.T.Fatal(err)
	}
	surroundings := daemon.Surroundings{Root: root, Layers: folders, Cgroup: b.Cgroup + "/direct", Volumes: b.folders(manifest)}
	return &Direct{Machine: b, Plan: daemonPlan{Surroundings: surroundings, Exec: b.suite.Stager.Exec, Env: b.suite.Stager.Env}}
}

// folders returns the folders that a Kurma daemon mounts at /volumes: one for each volume that the manifest's pod names.
// It has the folder of an empty volume since an earlier pod, whose file is in it, and does not look at mode and owner.
func (b *Machine) folders(manifest any) map[string]string {
	b.T.Helper()
	document, _ := manifest.(Document)
	pod, _ := document["pod"].(PodDoc)
	all := make(map[string]string)
	for _, v := range pod.Volumes {
		if all[v.Name] = v.Source; v.Kind == "empty" {
			all[v.Name] = b.Folder("daemon-volume-"+v.Name, 0o700)
			if err := os.WriteFile(filepath.Join(all[v.Name], "earlier"), nil, 0o600); err != nil {
				b.T.Fatal(err)
			}
		}
	}
	return all
}

// CopyFile copies a file, which everyone may execute.
func (b *Machine) CopyFile(from, to string) {
	b.T.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		b.T.Fatal(err)
	}
}

// LayerID returns the image ID of a layer: the name of its folder, or of the folder's parent if the
// folder is a root file system in an image store.
func LayerID(dir string) string {
	if base := filepath.Base(dir); base != "rootfs" {
		return base
	}
	return filepath.Base(filepath.Dir(dir))
}

// Start executes the stager with the files as descriptors from 3 on; for nil the descriptor is closed.
// d.ready, if set, is the pipe whose write end is among the files.
func (d *Direct) Start(files ...*os.File) {
	d.T.Helper()
	if err := daemon.MakeCgroup(d.Plan.Cgroup); err != nil {
		d.T.Fatal(err)
	}
	d.T.Cleanup(func() {
		if err := daemon.RemoveCgroup(d.Cgroup); err != nil {
			d.T.Error(err)
		}
	})
	for i, f := range files {
		if f == nil {
			d.Plan.Close = append(d.Plan.Close, i+3)
			files[i] = os.Stdin
		}
	}
	d.log = filepath.Join(d.Dir, "direct.log")
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.T.Fatal(err)
	}
	defer log.Close()
	d.Cmd = exec.Command("/proc/self/exe")
	d.Cmd.Env = []string{daemonPlanVariable + "=" + d.Write("plan", d.Plan)}
	if d.Output != nil {
		log = d.Output
	}
	d.Cmd.Stdout, d.Cmd.Stderr, d.Cmd.ExtraFiles = log, log, files
	d.Cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Setsid: true}
	if err := d.Cmd.Start(); err != nil {
		d.T.Fatal(err)
	}
	d.ended = make(chan struct{})
	go func() {
		_ = d.Cmd.Wait() // ProcessState has the outcome
		close(d.ended)
	}()
	d.T.Cleanup(d.remove)
}

// StartReady starts the stager with a ready pipe as descriptor 4 and waits for
// its end of file.
func (d *Direct) StartReady() {
	d.T.Helper()
	read, write := d.Pipe()
	d.Ready = read
	d.Start(nil, write)
	write.Close()
	d.WaitReady()
}

// Pipe makes a pipe whose ends are closed at the test's end.
func (b *Machine) Pipe() (read, write *os.File) {
	b.T.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// WaitReady waits for end of file on the ready pipe. Only the stager may have the write end by now.
func (d *Direct) WaitReady() {
	d.T.Helper()
	if err := d.Ready.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		d.T.Fatal(err)
	}
	if _, err := io.ReadAll(d.Ready); err != nil {
		d.T.Fatalf("wait for end of file on the ready pipe: %v\n%s", err, d.Messages())
	}
	d.Note()
	if len(d.Processes()) < 2 {
		d.T.Fatalf("the stager is not up:\n%s", d.Messages())
	}
}

// Messages returns what the stager has written.
func (d *Direct) Messages() string {
	data, err := os.ReadFile(d.log)
	if err != nil {
		d.T.Fatal(err)
	}
	return string(data)
}

// Wait waits for the stager's end and returns its exit status, -1 for a signal.
func (d *Direct) Wait() int {
	d.T.Helper()
	select {
	case <-d.ended:
		return d.Cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		d.T.Fatalf("the stager does not end\n%s", d.Messages())
		return -1
	}
}

// Stop sends SIGTERM and waits for the stager's end.
func (d *Direct) Stop() {
	d.T.Helper()
	d.Note()
	if err := d.Cmd.Process.Signal(unix.SIGTERM); err != nil {
		d.T.Fatal(err)
	}
	if code := d.Wait(); code != 0 {
		d.T.Errorf("the stager's exit status is %d\n%s", code, d.Messages())
	}
}

// AppLog returns the log of an app, in the CRI format.
func (d *Direct) AppLog(app string) string {
	files, _ := filepath.Glob(filepath.Join(d.Plan.Root, d.suite.Stager.LogDir, app, "*"))
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			d.T.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// Sees waits until an app's log holds the text.
func (d *Direct) Sees(app, text string) {
	d.T.Helper()
	Eventually(d.T, fmt.Sprintf("%q in the log of %s", text, app), func() bool { return strings.Contains(d.AppLog(app), text) })
}

// remove kills the stager if it still runs, checks that no process is left, and removes what a daemon
// has to remove.
func (d *Direct) remove() {
	_ = d.Cmd.Process.Kill()
	d.Wait()
	d.CheckProcesses()
	if err := os.RemoveAll(d.Plan.Root); err != nil {
		d.T.Errorf("remove the stager's root: %v", err)
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
