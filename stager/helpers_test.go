package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/helper"
	"kurma.io/stager/names"
	"kurma.io/stager/program"
	"kurma.io/stager/tests/surroundings"
	"kurma.io/stager/unionfs"
)

// In this file the supervisor starts helpers at a test's request, through a socket in the stager's
// root.

const helperSocket = "/run/helpers"

// helperRequest asks the supervisor to do something with a helper.
type helperRequest struct {
	Do        string // start, kill, wait
	Name      string
	Args      []string
	Files     []string // paths in the stager's root, to read
	OwnMounts bool
}

// withHelpers makes the pod's supervisor take requests.
func withHelpers(p *testPod, _ map[string]any) {
	p.must(os.WriteFile(filepath.Join(p.root, helperSocket+".wanted"), nil, 0o600))
}

// withServer has the supervisor serve requests.
func withServer(o program.Options) program.Options {
	o.Drivers = func(starter helper.Starter, log *slog.Logger) []unionfs.Driver {
		go serveHelpers(starter, log)
		return unionfs.Drivers()
	}
	return o
}

func serveHelpers(starter helper.Starter, log *slog.Logger) {
	_ = os.Remove(helperSocket)
	l, err := net.Listen("unix", helperSocket)
	if err != nil {
		log.Error("listen", "error", err)
		return
	}
	var all sync.Map
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var request helperRequest
			if json.NewDecoder(conn).Decode(&request) == nil {
				_ = json.NewEncoder(conn).Encode(answerHelper(starter, &all, request))
			}
		}()
	}
}

func answerHelper(starter helper.Starter, all *sync.Map, request helperRequest) string {
	if request.Do == "start" {
		cmd := helper.Command{Name: request.Name, Args: request.Args, Env: []string{"GREETING=hello"}, OwnMounts: request.OwnMounts}
		for _, path := range request.Files {
			f, err := os.Open(path)
			if err != nil {
				return err.Error()
			}
			defer f.Close()
			cmd.Files = append(cmd.Files, f)
		}
		process, err := starter.Start(context.Background(), cmd)
		if err != nil {
			return err.Error()
		}
		all.Store(request.Name, process)
		return ""
	}
	found, _ := all.Load(request.Name)
	process, ok := found.(*helper.Process)
	if !ok {
		return "no such helper"
	}
	if request.Do == "kill" {
		process.Kill()
	}
	if err := process.Wait(); err != nil {
		return err.Error()
	}
	return ""
}

// ask sends a request and returns the answer, "" for success.
func (p *testPod) ask(request helperRequest) string {
	p.t.Helper()
	// A path in the test's folder may be too long for a socket's name.
	root, err := os.Open(p.root)
	p.must(err)
	defer root.Close()
	path := fmt.Sprintf("/proc/self/fd/%d%s", root.Fd(), helperSocket)
	var conn net.Conn
	p.eventually("the supervisor takes requests", func() bool {
		conn, err = net.Dial("unix", path)
		return err == nil
	})
	defer conn.Close()
	p.must(conn.SetDeadline(time.Now().Add(5 * surroundings.Patience)))
	p.must(json.NewEncoder(conn).Encode(request))
	var answer string
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return "no answer: " + err.Error()
	}
	return answer
}

func (p *testPod) eventually(what string, holds func() bool) {
	p.t.Helper()
	if !surroundings.Eventually(p.t, what, holds) {
		p.t.Fatal(p.messages())
	}
}

// shell returns the command line of a helper: a shell from the image's layer. $B is the folder of
// busybox's programs: without /proc/self/exe busybox does not find them.
func (p *testPod) shell(script string) []string {
	dir := fmt.Sprintf("/layers/sha512-%0128x/bin", 1)
	return []string{dir + "/busybox", "sh", "-c", "B=$0; " + script, dir}
}

// startHelper starts a shell as a helper of that name.
func (p *testPod) startHelper(name, script string) {
	p.t.Helper()
	if answer := p.ask(helperRequest{Do: "start", Name: name, Args: p.shell(script)}); answer != "" {
		p.t.Fatal(answer)
	}
}

// withArgument returns the PIDs of all processes that have an argument.
func withArgument(argument string) []int {
	var found []int
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		text, _ := os.ReadFile(line) // a gone one has none
		for arg := range bytes.SplitSeq(text, []byte{0}) {
			if string(arg) == argument {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(line)))
				found = append(found, pid)
			}
		}
	}
	return found
}

// unique returns a number of seconds to sleep that no other process has as an argument.
func (p *testPod) unique() string {
	return strings.ReplaceAll(strings.TrimPrefix(p.cgroup, "stager-test-"), "-", "00")
}

func parentOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// An app that is root with the default isolators sees no helper, and cannot kill one.
func TestAppsCannotReachHelpers(t *testing.T) {
	t.Parallel()
	script := "trap go=1 USR1; echo trapped; while [ -z $go ]; do sleep 0.1; done; for f in /proc/[0-9]*/cmdline; do cat $f; echo; done; kill -9 -1; echo done; exec sleep 1000"
	p := launch(t, []testApp{{Name: "a", App: map[string]any{"exec": []string{"/bin/sh", "-c", script}}}}, withHelpers)
	p.isReady()
	p.line("a")
	seconds := p.unique()
	p.startHelper("sleeper", "exec $B/sleep "+seconds)
	p.must(unix.Kill(p.pidOf("a"), unix.SIGUSR1))
	for line := p.line("a"); line != "done"; line = p.line("a") {
		if strings.Contains(line, seconds) {
			t.Errorf("the app sees the helper: %q", line)
		}
	}
	var pids []int
	p.eventually("the helper outlives the app's signals", func() bool {
		pids = withArgument(seconds)
		return len(pids) == 1
	})
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pids[0]))
	if err != nil || strings.Contains(string(groups), names.AppsCgroup) || !strings.Contains(string(groups), p.cgroup) {
		t.Errorf("%v; the helper is in the cgroups\n%s", err, groups)
	}
	for _, namespace := range []string{"mnt", "net", "ipc", "uts"} {
		a, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pids[0], namespace))
		b, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.cmd.Process.Pid, namespace))
		if a != b || a == "" {
			t.Errorf("the helper's namespace is %q, want %q", a, b)
		}
	}
	if code := p.stop(); code != 0 {
		t.Error("exit code", code)
	}
	if left := withArgument(seconds); left != nil {
		t.Error("helpers are left:", left)
	}
}

// init returns the PID of the pod's init in the test's namespace: of the stager's children, the one that is a fork of it.
func (p *testPod) init() int {
	p.t.Helper()
	stager, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))
	p.must(err)
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
	p.must(err)
	for _, task := range tasks {
		list, _ := os.ReadFile(task) // the thread may have ended
		for _, field := range strings.Fields(string(list)) {
			if line, err := os.ReadFile("/proc/" + field + "/cmdline"); err == nil && bytes.Equal(line, stager) {
				pid, err := strconv.Atoi(field)
				p.must(err)
				return pid
			}
		}
	}
	p.t.Fatalf("the stager has no init:\n%s", p.messages())
	return 0
}

var sleeper = []testApp{{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}}}}

// A failed start says what is wrong, wait returns a helper's exit code, and nothing is left of
// a helper.
func TestAHelpersEndIsReported(t *testing.T) {
	t.Parallel()
	p := launch(t, sleeper, withHelpers)
	for name, test := range map[string]struct {
		request helperRequest
		want    string
	}{
		"missing":        {helperRequest{Args: []string{"/no/such/program"}}, `start helper "missing": exec /no/such/program: ` + syscall.ENOENT.Error()},
		"not executable": {helperRequest{Args: []string{names.Manifest}}, `start helper "not executable": exec /manifest: ` + syscall.EACCES.Error()},
		"relative":       {helperRequest{Args: []string{"sh"}}, `start helper "relative": the program needs an absolute path`},
		"too many files": {helperRequest{Args: p.shell(""), Files: make([]string, 33)}, "open : no such file or directory"},
	} {
		test.request.Do, test.request.Name = "start", name
		if got := p.ask(test.request); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	seconds := p.unique()
	for name, test := range map[string]struct{ script, want string }{
		"success": {"exit 0", ""},
		"failure": {"exit 7", `helper "failure" ended with exit code 7`},
		"forks":   {"$B/sleep " + seconds + " & $B/busybox setsid $B/sleep " + seconds + " & ($B/sleep " + seconds + " &); exit 3", `helper "forks" ended with exit code 3`},
	} {
		p.startHelper(name, test.script)
		if got := p.ask(helperRequest{Do: "wait", Name: name}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if left := withArgument(seconds); left != nil {
		t.Error("a helper's own processes are left:", left)
	}
	p.isReady() // no helper holds the ready pipe
}
