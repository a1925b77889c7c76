// Package e2e runs the built stager image under the launcher, as root, with real pods.
//
// STAGER_BIN is the folder of the built programs, STAGER_EXAMPLES that of the
// examples' images, STAGER_IMAGES the one that tests/images/build.sh has filled.
// Without them the repository's own are taken.
package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"
)

// patience bounds every wait. A guest whose processor is emulated on a busy machine
// takes half a minute to boot.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	surroundings.Settle()
	os.Exit(m.Run())
}

// host is a launcher of a test's own, with the images it needs.
type host struct {
	t        *testing.T
	dir      string
	launcher string
	images   string // the folder of built images
	cgroup   string
	ids      map[string]string // image IDs by short name
}

func newHost(t *testing.T, images ...string) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root")
	}
	b := &host{t: t, dir: t.TempDir(), cgroup: fmt.Sprintf("kurma-vm-%d", os.Getpid()), ids: make(map[string]string)}
	b.launcher = filepath.Join(built(t, "STAGER_BIN", "../../../bin"), "launcher")
	b.images = built(t, "STAGER_IMAGES", "../../../build/out/images")
	stager := filepath.Join(built(t, "STAGER_EXAMPLES", "../../../build/out/examples"), "vm.aci")
	b.write("config.json", map[string]any{
		"parentCgroupName": b.cgroup, "trustedKeys": []string{stager + ".pub"}, "defaultStagerImage": "kurma.io/stager/vm",
	})
	files := []string{stager}
	for _, name := range images {
		id, err := os.ReadFile(filepath.Join(b.images, name+".id"))
		if err != nil {
			t.Fatal(err)
		}
		b.ids[name] = strings.TrimSpace(string(id))
		files = append(files, filepath.Join(b.images, name+".aci"))
	}
	b.must(append([]string{"image", "import"}, files...)...)
	return b
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

// write writes a value as JSON and returns the file's path.
func (b *host) write(name string, value any) string {
	b.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// outcome is a program's output and exit code.
type outcome struct {
	stdout, stderr string
	code           int // -1 if a signal ended it
}

// command is a run of the launcher that is still to be started.
func (b *host) command(args ...string) *exec.Cmd {
	return exec.Command(b.launcher, append([]string{"--config", filepath.Join(b.dir, "config.json"), "--state", b.dir}, args...)...)
}

// run runs the launcher to its end.
func (b *host) run(args ...string) outcome {
	b.t.Helper()
	return finish(b.t, b.command(args...))
}

// must runs the launcher, which must succeed, and returns its stdout.
func (b *host) must(args ...string) string {
	b.t.Helper()
	r := b.run(args...)
	if r.code != 0 {
		b.t.Fatalf("launcher %s: exit status %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// finish runs a command to its end, which must come in time.
func finish(t *testing.T, cmd *exec.Cmd) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%s hangs\n%s%s", strings.Join(cmd.Args, " "), stdout.String(), stderr.String())
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// eventually waits for a condition that has no event to wait for.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for pause := 10 * time.Millisecond; !condition(); pause = min(2*pause, time.Second) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(pause) //nolint:forbidigo // see above
	}
}

// pod is a pod that is up, or was.
type pod struct {
	*host
	name   string
	dir    string // the launcher's folder of the pod
	stager int    // PID
	helper []int  // its children: qemu and virtiofsd
}

// up starts the pod of a manifest and waits until it is up. It is stopped with the test.
func (b *host) up(name, manifest string) *pod {
	b.t.Helper()
	var info struct {
		UUID string
		PID  int
	}
	started := b.run("run", "--json", "--detach", "--name", name, manifest)
	if err := json.Unmarshal([]byte(started.stdout), &info); err != nil {
		logs, _ := filepath.Glob(filepath.Join(b.dir, "pods", "*", "stager.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			b.t.Logf("%s", text)
		}
		b.t.Fatalf("pod %s is not up: %d %s %s", name, started.code, started.stdout, started.stderr)
	}
	p := &pod{host: b, name: name, dir: filepath.Join(b.dir, "pods", info.UUID), stager: info.PID}
	p.helper = children(b.t, info.PID)
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Logf("stager's log:\n%s", p.stagerLog())
		}
		p.stop()
	})
	return p
}

// children are a process's children, of all of its threads.
func children(t *testing.T, pid int) []int {
	t.Helper()
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
		}
	}
	return all
}

// child is the stager's child of that program.
func (p *pod) child(program string) int {
	p.t.Helper()
	for _, pid := range p.helper {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && filepath.Base(exe) == program {
			return pid
		}
	}
	p.t.Fatalf("the stager has no child %s", program)
	return 0
}

func (p *pod) stagerLog() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "stager.log"))
	return string(text)
}

// stop stops the pod, of which nothing may be left.
func (p *pod) stop() {
	p.t.Helper()
	if listed := p.must("ps", "--all"); strings.Contains(listed, p.name) {
		p.must("rm", "--force", p.name)
	}
	for _, pid := range append(p.helper, p.stager) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
			p.t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
		p.t.Errorf("files of the pod are left: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), p.dir) {
		p.t.Errorf("mounts of the pod are left, %v", err)
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, _ os.DirEntry, _ error) error {
		if filepath.Base(path) == p.cgroup {
			p.t.Errorf("cgroup %s is left", path)
		}
		return nil
	})
}

// appStatus is what the call-in status reports of an app.
type appStatus struct {
	PID    int    `json:"pid"`
	Exited bool   `json:"exited"`
	Code   int    `json:"exitCode"`
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

// exited waits until an app has exited.
func (p *pod) exited(app string) appStatus {
	p.t.Helper()
	var s appStatus
	eventually(p.t, app+" has exited", func() bool {
		s = p.status()[app]
		return s.Exited
	})
	return s
}

// logs returns what an app has written to stdout.
func (p *pod) logs(app string) string {
	p.t.Helper()
	return p.must("logs", p.name, app)
}

// sees waits until an app's log holds the text.
func (p *pod) sees(app, text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%q in the log of %s", text, app), func() bool {
		r := p.run("logs", p.name, app)
		return strings.Contains(r.stdout+r.stderr, text)
	})
}

// exec is a command in an app, still to be started.
func (p *pod) exec(app string, command ...string) *exec.Cmd {
	return p.command(append([]string{"exec", p.name, app, "--"}, command...)...)
}

// inNetwork is a command in the pod's network namespace.
func (p *pod) inNetwork(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", p.stager)}, args...)...)
}
