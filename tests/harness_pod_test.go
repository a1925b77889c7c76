package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// podDoc is an appc pod manifest, with the fields that the tests need.
type podDoc struct {
	Version     string      `json:"acVersion"`
	Kind        string      `json:"acKind"`
	Apps        []appDoc    `json:"apps"`
	Volumes     []volumeDoc `json:"volumes,omitempty"`
	Isolators   []any       `json:"isolators,omitempty"`
	Annotations []nameValue `json:"annotations,omitempty"`

	UserAnnotations map[string]string `json:"userAnnotations,omitempty"`
	UserLabels      map[string]string `json:"userLabels,omitempty"`
}

type appDoc struct {
	Name     string      `json:"name"`
	Image    imageRef    `json:"image"`
	App      *sectionDoc `json:"app,omitempty"`
	Mounts   []any       `json:"mounts,omitempty"` // mountDoc, ownMountDoc
	ReadOnly bool        `json:"readOnlyRootFS,omitempty"`

	Annotations []nameValue `json:"annotations,omitempty"`
}

type imageRef struct {
	ID string `json:"id"`
}

type nameValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type sectionDoc struct {
	Exec             []string     `json:"exec"`
	User             string       `json:"user"`
	Group            string       `json:"group"`
	SupplementaryGID []int        `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string       `json:"workingDirectory,omitempty"`
	Environment      []nameValue  `json:"environment,omitempty"`
	EventHandlers    []handlerDoc `json:"eventHandlers,omitempty"`
	MountPoints      []any        `json:"mountPoints,omitempty"`
	Isolators        []any        `json:"isolators,omitempty"`

	UserAnnotations map[string]string `json:"userAnnotations,omitempty"`
	UserLabels      map[string]string `json:"userLabels,omitempty"`
}

type handlerDoc struct {
	Name string   `json:"name"`
	Exec []string `json:"exec"`
}

type volumeDoc struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Source    string `json:"source,omitempty"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
	Recursive *bool  `json:"recursive,omitempty"`
	Mode      string `json:"mode,omitempty"`
	UID       *int   `json:"uid,omitempty"`
	GID       *int   `json:"gid,omitempty"`
}

type mountDoc struct {
	Volume string `json:"volume"`
	Path   string `json:"path"`
}

// ownMountDoc mounts a volume that is the app's own.
type ownMountDoc struct {
	mountDoc
	Own volumeDoc `json:"appVolume"`
}

// isolator returns an isolator with a value of any type.
func isolator(name string, value any) map[string]any {
	return map[string]any{"name": name, "value": value}
}

// shell returns an app of the busybox image that runs a shell script as root.
func shell(name, script string) appDoc { return command(name, "/bin/sh", "-c", script) }

// command returns an app of the busybox image that runs a command as root.
func command(name string, args ...string) appDoc {
	return appDoc{
		Name:  name,
		Image: imageRef{suite.ids["busybox"]},
		App:   &sectionDoc{Exec: args, User: "0", Group: "0"},
	}
}

func podOf(apps ...appDoc) podDoc {
	return podDoc{Version: "0.8.11", Kind: "PodManifest", Apps: apps}
}

// hostVolume adds a volume of the host to the pod and mounts it in all of its apps.
func (d podDoc) hostVolume(name, source, target string) podDoc {
	d.Volumes = append(slices.Clone(d.Volumes), volumeDoc{Name: name, Kind: "host", Source: source})
	d.Apps = slices.Clone(d.Apps)
	for i := range d.Apps {
		d.Apps[i].Mounts = append(slices.Clone(d.Apps[i].Mounts), mountDoc{name, target})
	}
	return d
}

// pod is a pod that is up or has ended.
type pod struct {
	*machine
	name, uuid string
	dir        string // the launcher's folder of the pod
	stager     int    // PID
}

// up starts a pod and waits until it is up. The machine stops it at the test's end.
func (b *machine) up(name string, doc podDoc) *pod {
	b.t.Helper()
	path := b.write(name+".json", doc)
	return b.adopt(b.must("run", "--json", "--detach", "--name", name, path))
}

// adopt returns the pod that `launcher run --json` has started; started is its output.
func (b *machine) adopt(started string) *pod {
	b.t.Helper()
	var info struct {
		UUID, Name string
		PID        int
	}
	if err := json.Unmarshal([]byte(started), &info); err != nil {
		b.t.Fatalf("launcher run --json printed %q: %v", started, err)
	}
	p := &pod{b, info.Name, info.UUID, filepath.Join(b.pods, info.UUID), info.PID}
	b.note()
	return p
}

// refuse starts a pod. The start must fail with one line that contains all of the words, and leave
// nothing behind.
func (b *machine) refuse(name string, doc any, words ...string) {
	b.t.Helper()
	r := b.launcher("run", "--detach", "--name", name, b.write(name+".json", doc))
	if r.code != 1 || strings.Count(r.stderr, "\n") != 1 {
		b.t.Errorf("exit status %d, want 1; stderr %q, want one line", r.code, r.stderr)
	}
	for _, word := range words {
		if !strings.Contains(r.stderr, word) {
			b.t.Errorf("stderr %q, want %q in it", r.stderr, word)
		}
	}
	b.checkGone()
}

// stop stops the pod. After the machine's last pod nothing may be left.
func (p *pod) stop() {
	p.t.Helper()
	p.note()
	p.must("stop", p.name)
	p.must("rm", p.name)
	if len(p.ps()) == 0 {
		p.checkGone()
	}
}

// root returns the host's path of a path in the stager's root.
func (p *pod) root(path string) string { return filepath.Join(p.dir, "root", path) }

// stagerLog returns the stager's own output.
func (p *pod) stagerLog() string {
	data, err := os.ReadFile(filepath.Join(p.dir, "stager.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// logs returns what an app has written to both streams.
func (p *pod) logs(app string) string {
	p.t.Helper()
	r := p.launcher("logs", p.name, app)
	if r.code != 0 {
		p.t.Fatalf("logs of %s: exit status %d: %s", app, r.code, r.stderr)
	}
	return r.stdout + r.stderr
}

// sees waits until an app's log contains the text.
func (p *pod) sees(app, text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q in the log of %s", text, app), func() bool { return strings.Contains(p.logs(app), text) })
}

// exec runs a command in an app through the launcher.
func (p *pod) exec(app string, command ...string) result {
	p.t.Helper()
	return p.launcher(append([]string{"exec", p.name, app, "--"}, command...)...)
}

// appStatus is an app in the output of the call-in status.
type appStatus struct {
	PID    int    `json:"pid"`
	Exited bool   `json:"exited"`
	Code   *int   `json:"exitCode"`
	Reason string `json:"exitReason"`
}

func (p *pod) status() map[string]appStatus {
	p.t.Helper()
	var all map[string]appStatus
	if err := json.Unmarshal([]byte(p.must("status", "--json", p.name)), &all); err != nil {
		p.t.Fatal(err)
	}
	return all
}

// exited waits until an app has exited and returns its exit code and reason.
func (p *pod) exited(app string) (code int, reason string) {
	p.t.Helper()
	var s appStatus
	eventually(p.t, app+" has exited", func() bool {
		s = p.status()[app]
		return s.Exited
	})
	if s.Code == nil {
		p.t.Fatalf("app %s has exited without a code", app)
	}
	return *s.Code, s.Reason
}

// supervisor returns the host's PID of the pod's PID 1.
func (p *pod) supervisor() int {
	p.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.stager, p.stager))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(children)))
	if err := errors.Join(err, convErr); err != nil {
		p.t.Fatalf("find the supervisor: %v", err)
	}
	return pid
}

// callIn returns a call-in as a daemon executes it, not started yet: in the stager's mount and network
// namespaces only, with HOME as its environment. args begin with the call-in's name; ExtraFiles[0] is
// descriptor 3.
func (p *pod) callIn(args ...string) *exec.Cmd {
	args = append([]string{"enter-pod", strconv.Itoa(p.stager)}, args...)
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{"HOME=/root"}
	return cmd
}

// inNetwork returns a command in the pod's network namespace and the host's other namespaces.
func (p *pod) inNetwork(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", p.stager)}, args...)...)
}

// enterPod makes this process a call-in.
func enterPod(stager string, args []string) error {
	runtime.LockOSThread()
	pid, err := strconv.Atoi(stager)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNS|unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Close(fd); err != nil {
		return err
	}
	path := names.CallInDir + "/" + args[0]
	return syscall.Exec(path, append([]string{path}, args[1:]...), os.Environ())
}

// signalPipe is a FIFO to which apps write and on which a test waits, so that the test need not poll.
type signalPipe struct {
	t    *testing.T
	file *os.File
	rest string
}

// signalPipe makes a FIFO in a folder that is a volume of the pod.
func (b *machine) signalPipe(path string) *signalPipe {
	b.t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		b.t.Fatal(err)
	}
	// O_RDWR makes the test a writer, so it never reads end of file.
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { file.Close() })
	return &signalPipe{t: b.t, file: file}
}

// line waits for the next line.
func (s *signalPipe) line() string {
	s.t.Helper()
	return s.lineWithin(patience)
}

// lineWithin is line with another limit.
func (s *signalPipe) lineWithin(limit time.Duration) string {
	s.t.Helper()
	if err := s.file.SetReadDeadline(time.Now().Add(limit)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if line, rest, ok := strings.Cut(s.rest, "\n"); ok {
			s.rest = rest
			return line
		}
		n, err := s.file.Read(buf)
		if err != nil {
			s.t.Fatalf("wait for a word from an app: %v", err)
		}
		s.rest += string(buf[:n])
	}
}
