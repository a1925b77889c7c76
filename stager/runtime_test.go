package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// The key "runtime" selects how apps and commands start. A mask of /proc is read-only in a direct start alone.
func TestConfigurationSelectsHowAppsStart(t *testing.T) {
	const script = "grep ' /proc/interrupts ' /proc/self/mountinfo | cut -d' ' -f6 | cut -d, -f1"
	for name, want := range map[string]string{"": "ro", "direct": "ro", "libcontainer": "rw"} {
		p := launch(t, []testApp{{Name: "a", App: map[string]any{"exec": []string{"/bin/sh", "-c", script + "; exec sleep 1000"}}}}, withConfig("runtime", name))
		p.isReady()
		if got := p.line("a"); got != want {
			t.Errorf("runtime %q: the app's mask is %q, want %q", name, got, want)
		}
		if got := p.run("a", map[string]any{"exec": []string{"/bin/sh", "-c", script}, "user": "0", "group": "0"}); got != want+"\n" {
			t.Errorf("runtime %q: a command sees %q, want %q", name, got, want)
		}
	}
}

// In the host's PID namespace the kernel ends no pod with its init: init ends the apps of each runtime itself.
func TestAppsInTheHostsPIDNamespaceEndWithTheSupervisor(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{"direct", "libcontainer"} {
		for victim, find := range map[string]func(p *testPod) int{
			"supervisor": func(p *testPod) int { return p.cmd.Process.Pid },
			"init":       (*testPod).init,
		} {
			t.Run(victim+" "+runtime, func(t *testing.T) {
				t.Parallel()
				seconds := fmt.Sprint(1_000_000_000 + rand.Int32N(1_000_000_000)) // no other process sleeps so long
				app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sh", "-c", "/bin/busybox setsid sleep " + seconds + " & exec sleep " + seconds}}}
				p := launch(t, []testApp{app}, withHostPID, withConfig("runtime", runtime))
				t.Cleanup(p.removeAppsCgroups)
				p.isReady()
				p.eventually("the app and its child run", func() bool { return len(withArgument(seconds)) == 2 })
				if err := unix.Kill(find(p), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				p.exits()
				p.eventually("nothing of the app is left", func() bool { return withArgument(seconds) == nil })
			})
		}
	}
}
