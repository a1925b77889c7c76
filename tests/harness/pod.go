package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// Pod is a pod that is up or has ended.
type Pod struct {
	*Machine
	Name, UUID string
	Dir        string // the launcher's folder of the pod
	Stager     int    // PID
}

// Up starts a pod and waits until it is up. The machine stops it at the test's end.
func (b *Machine) Up(name string, doc PodDoc) *Pod {
	b.T.Helper()
	path := b.Write(name+".json", doc)
	return b.Adopt(b.Must("run", "--json", "--detach", "--name", name, path))
}

// Adopt returns the pod that `launcher run --json` has started; started is its output.
func (b *Machine) Adopt(started string) *Pod {
	b.T.Helper()
	var info struct {
		UUID, Name string
		PID        int
	}
	if err := json.Unmarshal([]byte(started), &info); err != nil {
		b.T.Fatalf("launcher run --json printed %q: %v", started, err)
	}
	p := &Pod{b, info.Name, info.UUID, filepath.Join(b.Pods, info.UUID), info.PID}
	b.Note()
	return p
}

// Refuse starts a pod. The start must fail with one line that contains all of the words, and leave
// nothing behind. The exit status must be 1, or 127 or 126 if an app's program is missing or cannot be executed.
func (b *Machine) Refuse(name string, doc any, words ...string) {
	b.T.Helper()
	r := b.Launcher("run", "--detach", "--name", name, b.Write(name+".json", doc))
	want := 1
	if _, reason, found := strings.Cut(r.Stderr, ": exec "); found && strings.HasSuffix(reason, ": no such file or directory\n") {
		want = 127
	} else if found && strings.HasSuffix(reason, ": permission denied\n") {
		want = 126
	}
	if r.Code != want || strings.Count(r.Stderr, "\n") != 1 {
		b.T.Errorf("exit status %d, want %d; stderr %q, want one line", r.Code, want, r.Stderr)
	}
	for _, word := range words {
		if !strings.Contains(r.Stderr, word) {
			b.T.Errorf("stderr %q, want %q in it", r.Stderr, word)
		}
	}
	b.CheckGone()
}

// Stop stops the pod. After the machine's last pod nothing may be left.
func (p *Pod) Stop() {
	p.T.Helper()
	p.Note()
	p.Must("stop", p.Name)
	p.Must("rm", p.Name)
	if len(p.PS()) == 0 {
		p.CheckGone()
	}
}

// Root returns the host's path of a path in the stager's root.
func (p *Pod) Root(path string) string { return filepath.Join(p.Dir, "root", path) }

// StagerLog returns the stager's own output.
func (p *Pod) StagerLog() string {
	data, err := os.ReadFile(filepath.Join(p.Dir, "stager.log"))
	if err != nil {
		p.T.Fatal(err)
	}
	return string(data)
}

// Logs returns what an app has written to both streams.
func (p *Pod) Logs(app string) string {
	p.T.Helper()
	r := p.Launcher("logs", p.Name, app)
	if r.Code != 0 {
		p.T.Fatalf("logs of %s: exit status %d: %s", app, r.Code, r.Stderr)
	}
	return r.Stdout + r.Stderr
}

// Sees waits until an app's log contains the text.
func (p *Pod) Sees(app, text string) {
	p.T.Helper()
	Eventually(p.T, fmt.Sprintf("%q in the log of %s", text, app), func() bool { return strings.Contains(p.Logs(app), text) })
}

// Exec runs a command in an app through the launcher.
func (p *Pod) Exec(app string, command ...string) Result {
	p.T.Helper()
	return p.Launcher(append([]string{"exec", p.Name, app, "--"}, command...)...)
}

// AppStatus is an app in the output of the call-in status.
type AppStatus struct {
	PID    int    `json:"pid"`
	Exited bool   `json:"exited"`
	Code   *int   `json:"exitCode"`
	Reason string `json:"exitReason"`
}

// Status returns the apps' states by their names, by the call-in status.
func (p *Pod) Status() map[string]AppStatus {
	p.T.Helper()
	var all map[string]AppStatus
	if err := json.Unmarshal([]byte(p.Must("status", "--json", p.Name)), &all); err != nil {
		p.T.Fatal(err)
	}
	return all
}

// Exited waits until an app has exited and returns its exit code and reason.
func (p *Pod) Exited(app string) (code int, reason string) {
	p.T.Helper()
	var s AppStatus
	Eventually(p.T, app+" has exited", func() bool {
		s = p.Status()[app]
		return s.Exited
	})
	if s.Code == nil {
		p.T.Fatalf("app %s has exited without a code", app)
	}
	return *s.Code, s.Reason
}

// Init returns the host's PID of the pod's init.
func (p *Pod) Init() int {
	p.T.Helper()
	var children []string
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Stager))
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may have ended
		children = append(children, strings.Fields(string(text))...)
	}
	if err != nil || len(children) != 1 {
		p.T.Fatalf("find the init: the stager has the children %q, %v", children, err)
	}
	pid, err := strconv.Atoi(children[0])
	if err != nil {
		p.T.Fatal(err)
	}
	return pid
}

// CallIn returns a call-in as a daemon executes it, not started yet: in the stager's mount and network
// namespaces only, with HOME as its environment. args begin with the call-in's name; ExtraFiles[0] is
// descriptor 3.
func (p *Pod) CallIn(args ...string) *exec.Cmd {
	args = append([]string{"enter-pod", strconv.Itoa(p.Stager)}, args...)
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = []string{"HOME=/root"}
	return cmd
}

// InNetwork returns a command in the pod's network namespace and the host's other namespaces.
func (p *Pod) InNetwork(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", p.Stager)}, args...)...)
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

// SignalPipe is a FIFO to which apps write and on which a test waits, so that the test need not poll.
type SignalPipe struct {
	t    *testing.T
	File *os.File
	rest string
}

// SignalPipe makes a FIFO in a folder that is a volume of the pod.
func (b *Machine) SignalPipe(path string) *SignalPipe {
	b.T.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		b.T.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		b.T.Fatal(err)
	}
	// O_RDWR makes the test a writer, so it never reads end of file.
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() { file.Close() })
	return &SignalPipe{t: b.T, File: file}
}

// Line waits for the next line.
func (s *SignalPipe) Line() string {
	s.t.Helper()
	return s.LineWithin(Patience)
}

// LineWithin is line with another limit.
func (s *SignalPipe) LineWithin(limit time.Duration) string {
	s.t.Helper()
	if err := s.File.SetReadDeadline(time.Now().Add(limit)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		if line, rest, ok := strings.Cut(s.rest, "\n"); ok {
			s.rest = rest
			return line
		}
		n, err := s.File.Read(buf)
		if err != nil {
			s.t.Fatalf("wait for a word from an app: %v", err)
		}
		s.rest += string(buf[:n])
	}
}

// OnlyPod returns the machine's only pod, in any phase.
func (b *Machine) OnlyPod() *Pod {
	b.T.Helper()
	for _, info := range b.PS() {
		return &Pod{b, info.Name, info.UUID, filepath.Join(b.Pods, info.UUID), info.PID}
	}
	b.T.Fatal("the machine has no pod")
	return nil
}

// Monitor returns the launcher's process that is the stager's parent.
func (b *Machine) Monitor() int {
	b.T.Helper()
	return ParentOf(b.T, b.OnlyPod().Stager)
}

// ParentOf returns the PID of a process's parent.
func ParentOf(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	parent, err := strconv.Atoi(line)
	if err != nil {
		t.Fatal(err)
	}
	return parent
}
