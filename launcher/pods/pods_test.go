package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/names"
)

// A stager for these tests is a shell script that the host's busybox runs.
const (
	interpreter = "#!/busybox sh\n"
	isUp        = "exec 4>&-\n" // closes the ready descriptor
)

var stores atomic.Int32

// newStore makes a store with control groups of its own, none of which may be
// left at the end.
func newStore(t *testing.T) *Store {
	t.Helper()
	group := fmt.Sprintf("kurma-pods-test-%d-%d", os.Getpid(), stores.Add(1))
	s := Open(filepath.Join(t.TempDir(), "pods"), group)
	t.Cleanup(func() {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/" + group)
		pods, _ := filepath.Glob(filepath.Join(s.dir, "*-*"))
		if len(left)+len(pods) > 0 {
			t.Errorf("left: %v %v", left, pods)
		}
	})
	return s
}

// fakeUUID is a UUID that begins with zeros and ends in the name, in hexadecimal.
func fakeUUID(name string) string {
	return "00000000-0000-4000-8000-" + fmt.Sprintf("%012x", name[:min(len(name), 6)])
}

// newPod creates a pod whose stager is up at once, and then does what the script says.
func (s *Store) newPod(t *testing.T, name, body string) *Keeper {
	t.Helper()
	return s.newPodOf(t, fakeUUID(name), name, body)
}

func (s *Store) newPodOf(t *testing.T, uuid, name, body string) *Keeper {
	t.Helper()
	root := t.TempDir()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("busybox-static is needed: %v", err)
	}
	for file, data := range map[string]string{"busybox": string(busybox), names.Program: interpreter + isUp + body} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(data), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := s.Create(t.Context(), Plan{
		UUID:        uuid,
		Name:        name,
		StagerRoot:  root,
		Exec:        []string{names.Exec},
		Env:         []string{"HOME=/root"},
		Manifest:    json.RawMessage("{}"),
		StopTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// runScript replaces the script of a pod that has not been run.
func (k *Keeper) runScript(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.Plan.StagerRoot, names.Program), []byte(interpreter+text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// noted is the ready callback of a test that waits for nothing.
func noted() error { return nil }

func TestAStubbornStagerIsKilled(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "stubborn", "")
	pod.runScript(t, "trap '' TERM\n"+isUp+"while :; do /busybox sleep 1000; done\n") // it is stopped as soon as it is up
	ctx, stop := context.WithCancel(t.Context())
	exit, err := pod.Run(ctx, false, func() error { stop(); return nil })
	if err != nil || exit.Code != 128+int(syscall.SIGKILL) || exit.Signal != "SIGKILL" {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestAPodThatCannotBeReportedIsStopped(t *testing.T) {
	pod := newStore(t).newPod(t, "unheard", "/busybox sleep 1000\n")
	deaf := errors.New("not reported")
	exit, err := pod.Run(t.Context(), true, func() error { return deaf })
	if !errors.Is(err, deaf) || exit.Signal == "" {
		t.Errorf("%+v, %v", exit, err)
	}
	if _, err := os.Stat(pod.Dir); err == nil {
		t.Error("the pod is kept")
	}
}

func TestStopEndsAStartingPod(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "starting", "")
	pod.runScript(t, "/busybox sleep 1000\n") // it is never up
	ctx, stop := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	stop(why)
	if _, err := pod.Run(ctx, false, func() error { return errors.New("ready") }); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

// givenUp is a context that has ended when the pod is up, and not before.
type givenUp struct{ context.Context }

func (givenUp) Err() error { return context.Canceled }

// A pod that comes up when its start has been given up is deleted as one that does not: nobody knows of it.
func TestAPodThatComesUpTooLateIsDeleted(t *testing.T) {
	pod := newStore(t).newPod(t, "late", "/busybox sleep 1000\n")
	_, err := pod.Run(givenUp{context.Background()}, true, func() error { return errors.New("ready") })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(pod.Dir); err == nil {
		t.Error("the pod is kept")
	}
}

// The test stops a pod that has been created, when its monitor
// has not said yet who it is.
func TestStopWaitsForTheMonitor(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "early", "trap 'exit 0' TERM\nwhile :; do /busybox sleep 0.01; done\n")
	found, err := s.Find("early")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context(), found) }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a monitor on its way: %v", err)
	case <-time.After(10 * beforeStart):
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM) // this process is the monitor
	defer stop()
	if _, err := pod.Run(ctx, false, noted); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A command that is interrupted while it works on several pods leaves those whose turn has not come.
func TestAnEndedContextStopsNoPod(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "next", "")
	monitor := exec.Command("/bin/busybox", "sleep", "1000")
	if err := monitor.Start(); err != nil {
		t.Fatal(err)
	}
	var err error
	pod.State.Phase = Running
	if pod.State.Monitor, err = identify(monitor.Process.Pid); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{s.Stop(ctx, &pod.Pod), s.Remove(ctx, &pod.Pod, true)} {
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `stop pod "next"`) {
			t.Errorf("error %v", err)
		}
	}
	_, _ = monitor.Process.Kill(), monitor.Wait()
	if sig := monitor.ProcessState.Sys().(syscall.WaitStatus).Signal(); sig != syscall.SIGKILL {
		t.Errorf("the monitor ended by %v", sig)
	}
	if err := pod.Discard(); err != nil {
		t.Error(err)
	}
}

func TestFailedLaunchesAreReported(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Plan)
		words  string
	}{
		{"no program", func(p *Plan) { p.Exec = []string{"/none"} }, "start stager: fork/exec /none: no such file"},
		{"no image", func(p *Plan) { p.StagerRoot = "/nonexistent" }, "copy stager image"},
		{"no layer", func(p *Plan) { p.Layers = []Layer{{"sha512-0", "/nonexistent"}} }, "mount layer sha512-0: open /nonexistent"},
		{"no volume", func(p *Plan) { p.Volumes = []Volume{{Name: "v", Source: "/nonexistent"}} }, `volume "v"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := newStore(t).newPod(t, "x", "")
			tt.change(&pod.Plan)
			_, err := pod.Run(t.Context(), false, func() error { return errors.New("ready") })
			if err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line with %q", err, tt.words)
			}
		})
	}
}

func TestALinkForAMountPointIsRefused(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"dev", "layers", "volumes", "etc"} {
		pod := s.newPod(t, name, "")
		if err := os.Symlink("/tmp", filepath.Join(pod.Plan.StagerRoot, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := pod.Run(t.Context(), false, noted); err == nil || !strings.Contains(err.Error(), "not a folder") {
			t.Errorf("/%s: %v", name, err)
		}
	}
}

// What was checked when the pod was planned may be another thing when it is mounted.
func TestAVolumeSourceThatBecomesALinkIsRefused(t *testing.T) {
	tests := []struct{ name, source, link string }{
		{"itself", "a", "a"},
		{"a folder above", "a/b", "a"},
		{"a file", "f", "f"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/b"), 0o755), os.MkdirAll(filepath.Join(dir, "secret/b"), 0o755),
				os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			pod := newStore(t).newPod(t, "swap", "exec /busybox cat /volumes/v\n")
			pod.Plan.Volumes = []Volume{{Name: "v", Source: filepath.Join(dir, tt.source)}}
			file, err := openSource(pod.Plan.Volumes[0].Source)
			if err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
			if err := pod.makeRoot(); err != nil {
				t.Fatal(err)
			}
			link := filepath.Join(dir, tt.link)
			if err := errors.Join(os.Rename(link, link+".old"), os.Symlink("secret", link)); err != nil {
				t.Fatal(err)
			}
			err = inOwnMounts(func() error { return pod.mountVolume(filepath.Join(pod.Dir, rootDir), pod.Plan.Volumes[0], nil) })
			if err == nil || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("mounted: %v", err)
			}
			if err := pod.removeDir(); err != nil {
				t.Error(err)
			}
		})
	}
}

// inOwnMounts calls do in a mount namespace of its own.
func inOwnMounts(do func() error) error {
	result := make(chan error)
	thread.Go(func() {
		result <- errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), do())
	})
	return <-result
}

func TestFiveHundredLayersAreMounted(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "layers", "/busybox grep -c ' /layers/.* ro,' /proc/self/mountinfo\nexit 0\n")
	for i := range 500 {
		pod.Plan.Layers = append(pod.Plan.Layers, Layer{ID: fmt.Sprintf("sha512-%0128d", i), Dir: pod.Plan.StagerRoot})
	}
	exit, err := pod.Run(t.Context(), true, noted)
	if err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if data, err := os.ReadFile(pod.LogPath()); string(data) != "500\n" {
		t.Errorf("%q, %v", data, err)
	}
	if done, err := s.Collect(t.Context()); len(done) != 1 || err != nil {
		t.Errorf("Collect = %v, %v", done, err)
	}
}

func TestLastLineIsTheLastWithText(t *testing.T) {
	long := strings.Repeat("é", 100<<10)
	tests := []struct{ name, text, want string }{
		{"none", "", ""},
		{"blank lines at the end", "one\ntwo \n\n  \n", "two"},
		{"no newline", "one\ntwo", "two"},
		{"a long one", "one\nuser \"" + long + "\": no such user\n", "user \"" + long[:1018] + "…"},
		{"after a long one", long + "\ntwo\n", "two"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := lastLine(path, 0); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A line that the stager's log had before the stager started is no reason for its end.
func TestTheReasonOfAnEarlyEndIsTheStagers(t *testing.T) {
	for script, want := range map[string]string{
		"kill -KILL $$\n":              "nothing was logged",
		"echo own; kill -KILL $$\n":    "own",
		"echo own; echo >&2; exit 1\n": "own",
	} {
		pod := newStore(t).newPod(t, "ends", script)
		if err := os.WriteFile(pod.LogPath(), []byte("level=WARN msg=earlier\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pod.Run(t.Context(), true, noted); err == nil || !strings.HasSuffix(err.Error(), "): "+want) {
			t.Errorf("%q: error %v, want %q", script, err, want)
		}
	}
}

func TestLogsOfAnEndedPodAreKept(t *testing.T) {
	const write = "/busybox mkdir -p /logs/apps/a; echo hello >/logs/apps/a/1.log\n"
	tests := []struct {
		name, script, logDir string
		keep                 bool
		want                 string // of the file; "" for no folder
	}{
		{"kept", write, "/logs/apps", true, "hello\n"},
		{"below the root, whatever the path", write, "/../../logs/apps", true, "hello\n"},
		{"none", "exit 0\n", "/logs/apps", true, ""},
		{"not wanted", write, "/logs/apps", false, ""},
		{"unknown", write, "", true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			pod := s.newPod(t, "logs", tt.script)
			pod.Plan.LogDir = tt.logDir
			if _, err := pod.Run(t.Context(), tt.keep, noted); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(pod.Dir, appLogsDir, "a/1.log"))
			if string(data) != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("%q, %v", data, err)
			}
			if dir, err := pod.AppLogs(); (err == nil) != (tt.logDir != "" && tt.keep) || tt.name == "unknown" && !strings.Contains(err.Error(), names.LogDirAnnotation) {
				t.Errorf("AppLogs() = %v, %v", dir, err)
			} else if err == nil {
				dir.Close()
			}
			if _, err := s.Collect(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A root that cannot be removed is an error, and neither it nor the next attempt loses the logs.
func TestNothingIsMovedWhenAPodEnds(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "logs", "/busybox mkdir -p /logs/a; echo hello >/logs/a/1.log\n")
	pod.Plan.LogDir, pod.Plan.EventsFile = "/logs", "/logs/events"
	log := filepath.Join(pod.Dir, appLogsDir, "a/1.log")
	busy := filepath.Join(pod.Dir, rootDir, "layers")
	_, err := pod.Run(t.Context(), true, func() error {
		if _, err := os.Stat(filepath.Join(pod.Dir, rootDir, "logs/a")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the logs are in the root: %v", err)
		}
		return unix.Mount("tmpfs", busy, "tmpfs", 0, "")
	})
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("run: %v, want that the root is busy", err)
	}
	read := func() {
		t.Helper()
		if data, err := os.ReadFile(log); string(data) != "hello\n" {
			t.Errorf("%q, %v", data, err)
		}
	}
	read()
	found, err := s.Get(pod.Plan.UUID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context(), found); !errors.Is(err, unix.EBUSY) {
		t.Errorf("stop: %v, want that the root is busy", err)
	}
	read()
	if err := errors.Join(unix.Unmount(busy, 0), s.Stop(t.Context(), found)); err != nil {
		t.Fatal(err)
	}
	read()
	if err := s.Remove(t.Context(), found, false); err != nil {
		t.Error(err)
	}
}

// Logs cannot be where a link of the image leads to.
func TestALogFolderIsAFolderOfTheImage(t *testing.T) {
	for link, target := range map[string]string{"logs": "/tmp", "logs/apps": "../x"} {
		s := newStore(t)
		pod := s.newPod(t, "logs", "exit 0\n")
		pod.Plan.LogDir = "/logs/apps"
		at := filepath.Join(pod.Plan.StagerRoot, link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(target, at)); err != nil {
			t.Fatal(err)
		}
		if _, err := pod.Run(t.Context(), true, noted); err == nil || !strings.Contains(err.Error(), "/"+link+" that is not a folder") {
			t.Errorf("%s: %v", link, err)
		}
	}
}

func TestAProcessIsIdentifiedByItsStart(t *testing.T) {
	self, err := identify(os.Getpid())
	if err != nil || self.Start == 0 {
		t.Fatalf("%+v, %v", self, err)
	}
	if ended, err := self.ended(); ended || err != nil {
		t.Errorf("%+v has ended: %v", self, err)
	}
	if err := self.signal(0); err != nil {
		t.Error(err)
	}
	for _, other := range []Process{{PID: self.PID, Start: self.Start + 2}, {PID: 0}, {PID: 1 << 30, Start: 1}} {
		if err := other.signal(unix.SIGKILL); !errors.Is(err, errGone) {
			t.Errorf("%+v: %v", other, err)
		}
		if ended, err := other.ended(); !ended || err != nil {
			t.Errorf("%+v has not ended: %v", other, err)
		}
	}
}

func TestFindTakesANameOrAUUID(t *testing.T) {
	s := newStore(t)
	for _, name := range []string{"a", "ab"} {
		pod := s.newPod(t, name, "")
		defer func() {
			if err := pod.removeDir(); err != nil {
				t.Error(err)
			}
		}()
	}
	tests := []struct{ ref, want string }{
		{"a", "a"},
		{"ab", "ab"},
		{fakeUUID("ab")[:36], "ab"},
		{"00000000", ""},
		{"b", ""},
		{"", ""},
		{"cafe0000", "c"},
		{"cafe", "c"},
		{"caf", ""},
	}
	three := s.newPodOf(t, "cafe"+fakeUUID("c")[4:], "c", "")
	defer func() {
		if err := three.removeDir(); err != nil {
			t.Error(err)
		}
	}()
	for _, tt := range tests {
		pod, err := s.Find(tt.ref)
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || pod.Plan.Name != tt.want) {
			t.Errorf("Find(%q) = %v, %v", tt.ref, pod, err)
		}
	}
	if _, err := s.Create(t.Context(), Plan{UUID: fakeUUID("other"), Name: "a"}); err == nil {
		t.Error("a name is given twice")
	}
	if _, err := s.Create(t.Context(), Plan{UUID: "../x", Name: "x"}); err == nil {
		t.Error("a UUID that is none is taken")
	}
}

// Of several pods of one name that have ended, the latest is meant.
func TestFindReturnsTheLatestEndedPod(t *testing.T) {
	s := newStore(t)
	var uuids []string
	for _, uuid := range []string{fakeUUID("12345"), fakeUUID("1"), fakeUUID("123")} {
		pod := s.newPod(t, "p", "exit 0\n")
		if err := pod.removeDir(); err != nil {
			t.Fatal(err)
		}
		pod.Plan.UUID = uuid
		pod, err := s.Create(t.Context(), pod.Plan)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pod.Run(t.Context(), true, noted); err != nil {
			t.Fatal(err)
		}
		uuids = append(uuids, uuid)
		if found, err := s.Find("p"); err != nil || found.Plan.UUID != uuid {
			t.Errorf("after %v: %v, %v", uuids, found, err)
		}
	}
	if done, err := s.Collect(t.Context()); len(done) != 3 || err != nil {
		t.Errorf("Collect = %v, %v", done, err)
	}
}

// The test binds a socket in the journal's folder, in place of journald's.
func TestTheJournalsFolderIsMounted(t *testing.T) {
	for _, tt := range []struct{ name, journal, want string }{
		{"given", t.TempDir(), "ro\nsocket\n"},
		{"none", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			pod := s.newPod(t, "log", "/busybox awk '$5 == \"/run/systemd/journal\" {print substr($6, 1, 2)}' /proc/self/mountinfo\n/busybox ls /run/systemd/journal 2>/dev/null\nexit 0\n")
			if pod.Plan.Journal = tt.journal; tt.journal != "" {
				socket, err := net.ListenPacket("unixgram", filepath.Join(tt.journal, "socket"))
				if err != nil {
					t.Fatal(err)
				}
				defer socket.Close()
			}
			if _, err := pod.Run(t.Context(), true, noted); err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(pod.LogPath()); string(data) != tt.want {
				t.Errorf("%q, %v", data, err)
			}
			if _, err := s.Collect(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
