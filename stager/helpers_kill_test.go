package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// A helper ends if any of the processes that it depends on is killed, even if it ignores signals.
func TestHelpersEndWithTheirParents(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]podOption{"own PID namespace": {withHelpers}, "host's PID namespace": {withHelpers, withHostPID}} {
		for victim, test := range map[string]struct {
			find func(p *testPod, helper int) int
			want string // what the helper's wait returns, where the supervisor is left
		}{
			"supervisor": {func(p *testPod, _ int) int { return p.cmd.Process.Pid }, ""},
			"init":       {func(p *testPod, _ int) int { return p.init() }, ""},
			"helper":     {func(_ *testPod, helper int) int { return helper }, `helper "h" ended with exit code 137`},
		} {
			t.Run(victim+" "+name, func(t *testing.T) {
				t.Parallel()
				p := launch(t, sleeper, options...)
				t.Cleanup(p.removeAppsCgroups)
				p.isReady()
				seconds := p.unique()
				p.startHelper("h", "trap '' TERM INT HUP; ($B/busybox setsid $B/sleep "+seconds+" &); $B/sleep "+seconds+"; true")
				p.eventually("the helper and its children run", func() bool { return len(withArgument(seconds)) == 2 })
				var shell int
				for _, pid := range withArgument(seconds) {
					if parent := parentOf(pid); parentOf(parent) != 0 && parent != p.cmd.Process.Pid {
						shell = max(shell, parent)
					}
				}
				if err := unix.Kill(test.find(p, shell), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if test.want != "" {
					if got := p.ask(helperRequest{Do: "wait", Name: "h"}); got != test.want {
						t.Errorf("%q, want %q", got, test.want)
					}
				} else {
					p.exits()
				}
				p.eventually("nothing of the helper is left", func() bool { return withArgument(seconds) == nil })
			})
		}
	}
}

// removeAppsCgroups plays the daemon, which removes the cgroups that a killed stager has left, and its own: a process
// keeps its cgroup for a moment after cgroup.procs has it no more.
func (p *testPod) removeAppsCgroups() {
	p.stop()
	for _, h := range hierarchies() {
		// In the host's PID namespace, init kills the pod before it ends. On version 2 it is in the stager's own cgroup.
		for _, dir := range []string{filepath.Join(h, p.cgroup), filepath.Join(h, p.cgroup, names.LeafCgroup)} {
			p.eventually("the stager's processes have ended", func() bool {
				pids, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
				return err != nil || len(pids) == 0
			})
		}
		p.eventually("the apps' cgroups are empty", func() bool {
			dirs, _ := filepath.Glob(filepath.Join(h, p.cgroup, names.AppsCgroup, "*", "*"))
			more, _ := filepath.Glob(filepath.Join(h, p.cgroup, names.AppsCgroup, "*"))
			for _, dir := range append(append(dirs, more...), filepath.Join(h, p.cgroup, names.AppsCgroup)) {
				_ = unix.Rmdir(dir) // files, and cgroups with processes
			}
			_, err := os.Stat(filepath.Join(h, p.cgroup, names.AppsCgroup))
			return err != nil
		})
		p.eventually("the stager's cgroup is empty", func() bool {
			_ = unix.Rmdir(filepath.Join(h, p.cgroup, names.LeafCgroup)) // only on version 2
			err := unix.Rmdir(filepath.Join(h, p.cgroup))
			return err == nil || errors.Is(err, unix.ENOENT)
		})
	}
	p.removed = true
}

// The pod's stop does not wait for helpers, even if one is stopped or ignores signals.
func TestStopEndsHelpers(t *testing.T) {
	t.Parallel()
	p := launch(t, sleeper, withHelpers, withConfig("gracePeriod", "1s"))
	p.isReady()
	seconds := p.unique()
	p.startHelper("stopped", "kill -STOP $$; $B/sleep "+seconds)
	p.startHelper("stubborn", "trap '' TERM INT HUP; $B/sleep "+seconds+"; true")
	p.startHelper("killed", "trap '' TERM INT HUP; $B/sleep "+seconds+"; true")
	if got := p.ask(helperRequest{Do: "kill", Name: "killed"}); got != `helper "killed" ended with exit code 137` {
		t.Errorf("a killed helper: %q", got)
	}
	if code := p.stop(); code != 143 && code != 137 && code != 0 {
		t.Error("exit code", code)
	}
	if left := withArgument(seconds); left != nil {
		t.Error("helpers are left:", left)
	}
}

// A helper's output is in the stager's log with the helper's name. Most lines of a flood are dropped,
// and the helper does not wait.
func TestAHelpersOutputIsLogged(t *testing.T) {
	t.Parallel()
	p := launch(t, sleeper, withHelpers)
	p.isReady()
	p.startHelper("talker", `echo "out $GREETING"; echo err >&2; echo -n last`)
	p.startHelper("flood", "$B/dd if=/dev/zero bs=64k count=100; i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; exit 5")
	if got := p.ask(helperRequest{Do: "wait", Name: "flood"}); got != `helper "flood" ended with exit code 5` {
		t.Errorf("flood: %q", got)
	}
	p.ask(helperRequest{Do: "wait", Name: "talker"})
	p.eventually("the log has it", func() bool { return strings.Contains(p.messages(), "some are dropped") })
	text := p.messages()
	for _, want := range []string{`helper=talker line="out hello"`, "helper=talker line=err", "helper=talker line=last", `helper=flood line="line 1"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the log has no %q", want)
		}
	}
	if n := strings.Count(text, "helper=flood line="); n > 2500 || len(text) > 1<<20 { // so many a second are logged, on a slow machine for longer
		t.Errorf("the log has %d lines of the flood, and %d bytes", n, len(text))
	}
}

// Helpers that run at the same time have their own exit codes and files.
func TestTenHelpersRunAtOnce(t *testing.T) {
	t.Parallel()
	p := launch(t, sleeper, withHelpers)
	p.isReady()
	p.must(os.WriteFile(filepath.Join(p.root, "one"), []byte("1"), 0o600))
	p.must(os.WriteFile(filepath.Join(p.root, "two"), []byte("2"), 0o600))
	for range 8 {
		var all sync.WaitGroup
		for i := range 10 {
			name := fmt.Sprint("helper", i)
			all.Go(func() {
				answer := p.ask(helperRequest{
					Do: "start", Name: name, Files: []string{"/two", "/one"},
					Args: p.shell(fmt.Sprintf(`read -r x <&3; read -r y <&4; exit $((x*100+y*10+%d))`, i)),
				})
				if answer != "" {
					t.Error(answer)
				}
			})
		}
		all.Wait()
		for i := range 10 {
			want := fmt.Sprintf(`helper "helper%d" ended with exit code %d`, i, 210+i)
			if got := p.ask(helperRequest{Do: "wait", Name: fmt.Sprint("helper", i)}); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

// A daemon removes the pod's cgroup as soon as the supervisor has ended.
func TestAHelperEndsBeforeTheSupervisor(t *testing.T) {
	t.Parallel()
	p := launch(t, sleeper, withHelpers)
	p.isReady()
	seconds := p.unique()
	p.startHelper("many", "i=0; while [ $((i += 1)) -le 300 ]; do $B/sleep "+seconds+" & done; wait")
	p.eventually("the helper's processes run", func() bool { return len(withArgument(seconds)) == 300 })
	p.must(p.cmd.Process.Signal(unix.SIGTERM))
	p.exits()
	if left := withArgument(seconds); left != nil {
		t.Errorf("the processes %v of the helper run after the supervisor", left)
	}
}

// With OwnMounts the supervisor does not see a helper's mounts; without, it sees them.
func TestAHelpersMountsStayItsOwnIfAsked(t *testing.T) {
	t.Parallel()
	p := launch(t, sleeper, withHelpers)
	p.isReady()
	for name, test := range map[string]struct {
		own    bool
		script string
	}{
		"own":    {true, `$B/busybox mount -t tmpfs helper-own /tmp`},
		"shared": {false, `$B/busybox mount -t tmpfs helper-shared /tmp`},
	} {
		if answer := p.ask(helperRequest{Do: "start", Name: name, Args: p.shell(test.script), OwnMounts: test.own}); answer != "" {
			t.Fatal(answer)
		}
		if got := p.ask(helperRequest{Do: "wait", Name: name}); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.cmd.Process.Pid))
	p.must(err)
	if strings.Contains(string(mounts), "helper-own") || !strings.Contains(string(mounts), "helper-shared") {
		t.Errorf("the supervisor's mounts are\n%s\n%s", mounts, p.messages())
	}
	seconds := p.unique()
	p.startHelper("open", "exec $B/sleep "+seconds)
	var files []os.DirEntry
	p.eventually("the helper runs", func() bool {
		found := withArgument(seconds)
		if len(found) == 1 {
			files, err = os.ReadDir(fmt.Sprintf("/proc/%d/fd", found[0]))
		}
		return len(found) == 1
	})
	if err != nil || len(files) != 3 {
		t.Errorf("a helper without files has the descriptors %v, %v", files, err)
	}
}

// libcontainer has threads of the supervisor join an app's mount namespace and end there. The first
// thread cannot end, and what /proc/PID shows of the supervisor is that thread's.
func TestSupervisorsFirstThreadStaysInItsMountNamespace(t *testing.T) {
	t.Parallel()
	var apps []testApp
	for i := range 12 {
		apps = append(apps, testApp{Name: fmt.Sprint("a", i), App: map[string]any{"exec": []string{"/bin/sleep", "1000"}}})
	}
	p := launch(t, apps)
	p.isReady()
	proc := fmt.Sprintf("/proc/%d", p.cmd.Process.Pid)
	first, err := os.Readlink(proc + "/ns/mnt")
	p.must(err)
	// The last of libcontainer's threads may still be ending.
	p.eventually("no thread is in another mount namespace than the first, "+first, func() bool {
		threads, err := os.ReadDir(proc + "/task")
		p.must(err)
		threads = slices.DeleteFunc(threads, func(thread os.DirEntry) bool {
			other, err := os.Readlink(filepath.Join(proc, "task", thread.Name(), "ns/mnt"))
			return err != nil || other == first
		})
		return len(threads) == 0
	})
	if _, err := os.Stat(proc + "/root/manifest"); err != nil {
		t.Error("the supervisor's root is not the stager's:", err)
	}
}
