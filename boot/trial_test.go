package boot

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/supervisor/supervisortest"
	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
	"kurma.io/stager/unionfs"
)

// This file starts this test program again as the supervisor of a pod: PID 1 of new namespaces in a stager's root,
// with a runtime of plain processes. These tests need root.

// trialVariable has the JSON text of a trial.
const trialVariable = "BOOT_TEST_TRIAL"

// TestMain is also the supervisor of a trial.
func TestMain(m *testing.M) {
	text := os.Getenv(trialVariable)
	if text == "" {
		surroundings.SettleAsRoot()
		os.Exit(m.Run())
	}
	if err := supervise([]byte(text)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// trial is one call of Run.
type trial struct {
	Root   string // the stager's
	Cgroup string // the pod's, as a folder of the host

	Without  []string // steps that are left out
	After    string   // after the step of this name, one fails
	Notifies bool     // the app reports when it is ready
	Break    string   // the row of obstacles that stands in the way
}

// outcome is how a trial ended.
type outcome struct {
	Code    int
	Err     string
	Left    []string // what Run has left behind
	Changed string   // how the plan differs from what it was
	Log     string
	Output  string // of the app
}

// appID is the ID of the app's image.
var appID = fmt.Sprintf("sha512-%0128x", 1)

// app writes what it has got, and ends with code 3.
const app = `echo "main has $(busybox cat /before), $LISTEN_FDS socket, $AC_METADATA_URL"; exit 3`

// manifestOf returns a manifest of a pod that needs every step.
func manifestOf(t *testing.T, notifies bool) []byte {
	t.Helper()
	sh := func(script string) []string { return []string{"busybox", "sh", "-c", script} }
	text, err := json.Marshal(map[string]any{
		"kurmaVersion": "0.4.1", "name": "demo", "appImageOrder": map[string]any{"a": []string{appID}},
		"images": map[string]any{appID: map[string]any{
			"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/a",
			"app": map[string]any{
				"exec": sh(app), "user": "0", "group": "0",
				"eventHandlers": []any{map[string]any{"name": "pre-start", "exec": sh("echo handler >/before")}},
				"ports":         []any{map[string]any{"name": "web", "protocol": "tcp", "port": 8080, "socketActivated": true}},
				"mountPoints":   []any{map[string]any{"name": "own", "path": "/own"}},
			},
		}},
		"pod": map[string]any{
			"acVersion": "0.8.11", "acKind": "PodManifest",
			"apps": []any{map[string]any{
				"name": "a", "image": map[string]any{"id": appID},
				"annotations": []any{map[string]any{"name": "appc.io/executor/supports-systemd-notify", "value": fmt.Sprint(notifies)}},
				"mounts":      []any{map[string]any{"volume": "own", "path": "/own"}, map[string]any{"volume": "host", "path": "/host"}},
			}},
			"volumes": []any{
				map[string]any{"name": "own", "kind": "empty"}, map[string]any{"name": "host", "kind": "host", "source": "/source"},
			},
			"ports":     []any{map[string]any{"name": "web", "hostPort": 8080}},
			"isolators": []any{map[string]any{"name": "resource/network-bandwidth", "value": map[string]any{"default": true, "limit": "1M"}}},
		},
		"stagerConfig": map[string]any{"exitPolicy": "all", "log": map[string]any{"driver": "journald"}},
	})
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try runs a pod in a process of its own. Afterwards nothing of the pod may be left on the machine.
func try(t *testing.T, c trial) outcome {
	t.Helper()
	c.Root = t.TempDir()
	for _, dir := range []string{"proc", "dev", "tmp", "etc", names.CgroupDir, names.VolumesDir + "/host", names.LayersDir + "/" + appID + "/bin"} {
		must(t, os.MkdirAll(filepath.Join(c.Root, dir), 0o755))
	}
	must(t, os.WriteFile(filepath.Join(c.Root, names.Manifest), manifestOf(t, c.Notifies), 0o644))
	busybox, err := os.ReadFile("/bin/busybox") // Debian's busybox-static
	must(t, err)
	must(t, os.WriteFile(filepath.Join(c.Root, names.LayersDir, appID, "bin/busybox"), busybox, 0o755))
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
	must(t, err)
	c.Cgroup = filepath.Join(mounts[0].Mountpoint, "boot-test-"+strings.ToLower(rand.Text()[:10]))
	must(t, os.Mkdir(c.Cgroup, 0o755))
	defer func() { must(t, os.Remove(c.Cgroup)) }()

	text, err := json.Marshal(c)
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), surroundings.Patience)
	defer stop()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{trialVariable + "=" + string(text), "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	answer, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var o outcome
	must(t, json.Unmarshal(answer, &o))
	return o
}

// enterRoot makes the surroundings of a stager as a daemon does.
func enterRoot(c trial) error {
	for _, m := range []struct{ source, target string }{{c.Root, c.Root}, {"/dev", c.Root + "/dev"}, {c.Cgroup, c.Root + names.CgroupDir}} {
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(m.source, m.target, "", unix.MS_BIND, "")); err != nil {
			return fmt.Errorf("bind %s: %w", m.source, err)
		}
	}
	if err := errors.Join(unix.Chroot(c.Root), unix.Chdir("/"), unix.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback)
}

// plain is a driver of roots that are binds of their only layer.
type plain struct{}

func (plain) Name() string                             { return "plain" }
func (plain) Probe(string, []string) ([]string, error) { return nil, nil }
func (plain) Mount(_ context.Context, r unionfs.Root) error {
	return unix.Mount(r.Layers[0].Dir, r.Target, "", unix.MS_BIND, "")
}

// descriptors returns what the process's descriptors are, except those of the Go runtime.
func descriptors() (open []string) {
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && !strings.HasPrefix(target, "anon_inode:[event") {
			open = append(open, target)
		}
	}
	slices.Sort(open)
	return open
}

// goroutines returns the stacks of the stager's goroutines, except the trial's.
func goroutines() (running []string) {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "/stager/") && !strings.Contains(stack, "boot.supervise(") {
			running = append(running, stack)
		}
	}
	return running
}

// earlier is the last status of an earlier pod in the root of a trial with an obstacle.
const earlier = `{"a":{"exited":true,"exitCode":0}}`

// leftBehind returns what is left of the pod. open are the descriptors before the pod.
func leftBehind(open []string) (left []string) {
	var running []string
	if !poll.Until(surroundings.Patience, 10*time.Millisecond, func() bool { running = goroutines(); return len(running) == 0 }) {
		left = append(left, running...)
	}
	for _, d := range descriptors() {
		i := slices.Index(open, d)
		switch {
		case i >= 0:
			open = slices.Delete(open, i, i+1)
		case d != "/": // the claim of the root, until the process ends
			left = append(left, "descriptor of "+d)
		}
	}
	if text, _ := os.ReadFile(lastStatus); string(text) == earlier {
		left = append(left, lastStatus)
	}
	groups, _ := filepath.Glob(names.CgroupDir + "/*/cgroup.procs")
	left = append(left, groups...)
	if info, err := os.Lstat(names.ControlSocket); err == nil && info.Mode()&os.ModeSocket != 0 {
		left = append(left, names.ControlSocket)
	}
	if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		left = append(left, fmt.Sprintf("child %d, %v", pid, err))
	}
	return left
}

// supervise runs the pod of a trial, and writes its outcome to stdout.
func supervise(text []byte) error {
	var c trial
	if err := errors.Join(json.Unmarshal(text, &c), enterRoot(c)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(names.JournalSocket), 0o755); err != nil {
		return err
	}
	journal, err := net.ListenPacket("unixgram", names.JournalSocket)
	if err != nil {
		return err
	}
	defer journal.Close()
	var log bytes.Buffer
	parts := Parts{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Runtime: supervisortest.NewRuntime(names.AppsCgroup),
		Drivers: []unionfs.Driver{plain{}}, Init: fakeInit{pid: os.Getpid()},
	}
	if c.Break != "" {
		err := errors.Join(os.MkdirAll(names.LogDir, 0o755), os.WriteFile(lastStatus, []byte(earlier), 0o640))
		if err := errors.Join(err, obstacles()[c.Break].put(&parts)); err != nil {
			return err
		}
	}
	var pod *Pod
	open := descriptors()
	code, err := Run(context.Background(), parts, stepsOf(c, &pod))
	o := outcome{Code: code, Left: leftBehind(open), Log: log.String()}
	if err != nil {
		o.Err = err.Error()
	}
	if pod != nil && pod.Plan != nil {
		_, again, err := Decide(parts.Runtime, parts.Drivers, parts.Rows)
		if err != nil {
			return err
		}
		o.Changed = cmp.Diff(again, pod.Plan, cmp.Exporter(func(reflect.Type) bool { return true }))
	}
	logs, _ := filepath.Glob(names.LogDir + "/a/*")
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		o.Output += string(text)
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// stepsOf returns the steps of a trial. The first sets pod.
func stepsOf(c trial, pod **Pod) []Step {
	steps := []Step{{"keep pod", func(_ context.Context, p *Pod) error { *pod = p; return nil }}}
	for _, step := range Steps() {
		if !slices.Contains(c.Without, step.Name) {
			steps = append(steps, step)
		}
		if step.Name == c.After {
			steps = append(steps, Step{"fail", func(context.Context, *Pod) error { return errors.New("step refused") }})
		}
	}
	return steps
}

// fakeInit implements Init for a pod in the test's namespaces.
type fakeInit struct{ pid int }

func (fakeInit) Begin(uintptr, *os.File) error { return nil }
func (i fakeInit) PID() int                    { return i.pid }
func (fakeInit) In(do func() error) error      { return do() }
func (fakeInit) Up() error                     { return nil }
func (fakeInit) Lost() <-chan struct{}         { return nil }
func (fakeInit) Close() error                  { return nil }
