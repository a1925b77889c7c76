package main

import (
	"testing"
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
