// Package e2e runs the built stager image under the launcher, as root.
//
// STAGER_BIN is the folder of the built programs, STAGER_EXAMPLES that of the
// examples' images, STAGER_IMAGES the one that tests/images/build.sh has filled.
// Without them the repository's own are taken.
package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
	"kurma.io/stager/tests/surroundings"
)

// patience bounds every wait.
const patience = time.Minute

func TestMain(m *testing.M) {
	surroundings.Settle()
	os.Exit(m.Run())
}

// machine is a launcher of the test's own.
type machine struct {
	t             *testing.T
	dir, launcher string
	images        string
	cgroup        string
}

func built(t *testing.T, variable, otherwise string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = otherwise
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func newMachine(t *testing.T, images ...string) *machine {
	t.Helper()
	b := &machine{t: t, dir: t.TempDir(), cgroup: fmt.Sprintf("kurma-crun-%d", os.Getpid())}
	b.launcher = filepath.Join(built(t, "STAGER_BIN", "../../../bin"), "launcher")
	b.images = built(t, "STAGER_IMAGES", "../../../build/out/images")
	stager := filepath.Join(built(t, "STAGER_EXAMPLES", "../../../build/out/examples"), "crun.aci")
	config, err := json.Marshal(map[string]any{"parentCgroupName": b.cgroup, "trustedKeys": []string{stager + ".pub"}})
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	files := []string{stager}
	for _, name := range images {
		files = append(files, filepath.Join(b.images, name+".aci"))
	}
	b.must(append([]string{"image", "import"}, files...)...)
	return b
}

// run runs the launcher to its end and returns its stdout, stderr and exit status.
func (b *machine) run(args ...string) (stdout, stderr string, code int) {
	b.t.Helper()
	all := append([]string{"--config", filepath.Join(b.dir, "config.json"), "--state", b.dir}, args...)
	cmd := exec.CommandContext(b.t.Context(), b.launcher, all...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, patience
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("launcher %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs the launcher, which must succeed, and returns its stdout.
func (b *machine) must(args ...string) string {
	b.t.Helper()
	stdout, stderr, code := b.run(args...)
	if code != 0 {
		b.t.Fatalf("launcher %s: exit status %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// wantNothingLeft checks that the pod of that UUID has left nothing.
func (b *machine) wantNothingLeft(uuid string, pids ...int) {
	b.t.Helper()
	for _, pid := range pids {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			b.t.Errorf("process %d is left", pid)
		}
	}
	dir := filepath.Join(b.dir, "pods", uuid)
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		b.t.Errorf("files of the pod are left: %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), dir) {
		b.t.Errorf("mounts of the pod are left, %v", err)
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ os.DirEntry, _ error) error {
		if filepath.Base(path) == b.cgroup {
			b.t.Errorf("cgroup %s is left", path)
		}
		return nil
	})
}

// sees waits until the log of the app has the text.
func (b *machine) sees(pod, app, text string) {
	b.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		stdout, stderr, _ := b.run("logs", pod, app)
		if strings.Contains(stdout+stderr, text) {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("no %q in the log of %s:\n%s%s", text, app, stdout, stderr)
		}
	}
}

// A NATS server started by crun: run, status, logs, commands, stop, and nothing is left.
func TestNATSPodRunsUnderCrun(t *testing.T) {
	b := newMachine(t, "nats")
	var pod struct {
		UUID string
		PID  int
	}
	if err := json.Unmarshal([]byte(b.must("run", "--json", "--detach", "--name", "demo", filepath.Join(b.images, "pods/nats.json"))), &pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.run("rm", "--force", "demo")
		}
	})
	var status map[string]struct {
		PID    int  `json:"pid"`
		Exited bool `json:"exited"`
	}
	if err := json.Unmarshal([]byte(b.must("status", "--json", "demo")), &status); err != nil {
		t.Fatal(err)
	}
	nats := status["nats"]
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", nats.PID))
	if err != nil || nats.Exited || filepath.Base(exe) != "gnatsd" {
		t.Errorf("status %+v, process is %s, %v", nats, exe, err)
	}
	b.sees("demo", "nats", "Server is ready")
	if version := b.must("exec", "demo", "nats", "--", "/gnatsd", "--version"); !strings.HasPrefix(version, "nats-server: v") {
		t.Errorf("the command prints %q", version)
	}
	if _, stderr, code := b.run("exec", "demo", "nats", "--", "/no/such/program"); code != 127 || !strings.Contains(stderr, "/no/such/program") {
		t.Errorf("a program that is not there: exit status %d, %q", code, stderr)
	}
	b.must("rm", "--force", "demo")
	b.wantNothingLeft(pod.UUID, pod.PID, nats.PID)
}

// In the host's PID namespace an app's orphans do not stay as zombies, and the app ends with a stager that is killed.
func TestAPodInTheHostsPIDsEndsWithItsStager(t *testing.T) {
	b := newMachine(t, "busybox")
	id, err := os.ReadFile(filepath.Join(b.images, "busybox.id"))
	if err != nil {
		t.Fatal(err)
	}
	const script = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); (sleep 0.01 &); done; exec sleep 1000"
	manifest, err := json.Marshal(map[string]any{
		"acVersion": "0.7.4", "acKind": "PodManifest",
		"apps": []any{map[string]any{
			"name": "sh", "image": map[string]string{"id": strings.TrimSpace(string(id))},
			"app": map[string]any{"exec": []string{"/bin/sh", "-c", script}, "user": "0", "group": "0"},
		}},
		"isolators": []any{map[string]any{"name": "os/linux/namespaces", "value": map[string]string{"pid": "host"}}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(b.dir, "pod.json"), manifest, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pod struct {
		UUID string
		PID  int
	}
	if err := json.Unmarshal([]byte(b.must("run", "--json", "--detach", "--name", "demo", filepath.Join(b.dir, "pod.json"))), &pod); err != nil {
		t.Fatal(err)
	}
	children := func() (all []string) {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pod.PID))
		for _, list := range lists {
			text, _ := os.ReadFile(list)
			all = append(all, strings.Fields(string(text))...)
		}
		return all
	}
	if !poll.Until(patience, 10*time.Millisecond, func() bool { return len(children()) == 2 }) {
		t.Errorf("the stager has the children %q, want init and the app", children())
	}
	processes := children()
	if err := unix.Kill(pod.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, process := range processes {
		if !poll.Until(patience, 10*time.Millisecond, func() bool { _, err := os.Stat("/proc/" + process); return err != nil }) {
			t.Errorf("process %s is left", process)
		}
	}
	b.must("rm", "--force", "demo")
	b.wantNothingLeft(pod.UUID, pod.PID)
}
