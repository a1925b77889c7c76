package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/plan"
	"kurma.io/stager/tests/clause"
)

// An app, its handlers and its commands have a profile that the host has loaded; with another
// profile the pod does not start. Without AppArmor the isolator is ignored.
func TestAppRunsInAProfileOfTheHost(t *testing.T) {
	clause.Covers(t, "C-AAP-01")
	script := "cat /proc/self/attr/current; echo x 2>/dev/null >/tmp/denied || echo denied; echo x >/tmp/allowed && echo allowed"
	app := func(profile string) []testApp {
		return []testApp{{Name: "a", App: map[string]any{
			"exec":      []string{"/bin/sh", "-c", script + "; exec sleep 1000"},
			"isolators": isolatorList("os/linux/apparmor-profile", fmt.Sprintf("%q", profile)),
		}}}
	}
	name, want := fmt.Sprintf("stager-test-%d", os.Getpid()), []plan.Fate{plan.Ignored}
	enforces := machine.Support().AppArmor
	if enforces {
		want = []plan.Fate{plan.Enforced}
		loadProfile(t, name, "file,\ndeny /tmp/denied w,")
	}
	p := launch(t, app(name))
	p.isReady()
	var status struct{ App []plan.IsolatorFate }
	p.must(json.Unmarshal([]byte(p.callIn("status", "--isolators", "a")), &status))
	checkFates(t, want, status.App)
	if !enforces {
		return
	}
	lines := name + " (enforce)\ndenied\nallowed"
	if got := strings.Join([]string{p.line("a"), p.line("a"), p.line("a")}, "\n"); got != lines {
		t.Errorf("the app says\n%s", got)
	}
	if got := p.run("a", map[string]any{"exec": []string{"/bin/sh", "-c", script}, "user": "0", "group": "0"}); got != lines+"\n" {
		t.Errorf("a command says\n%s", got)
	}
	p = launch(t, app(name+"-missing"))
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), "set AppArmor profile") {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}

// loadProfile loads an AppArmor profile into the kernel until the test's end.
func loadProfile(t *testing.T, name, rules string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "profile")
	text := fmt.Sprintf("profile %s flags=(attach_disconnected) {\n%s\n}\n", name, rules)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	parser := func(option string) error {
		out, err := exec.Command("apparmor_parser", "--skip-cache", option, path).CombinedOutput()
		if err != nil {
			return fmt.Errorf("apparmor_parser %s (Debian's apparmor): %w: %s", option, err, out)
		}
		return nil
	}
	if err := parser("--replace"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parser("--remove"); err != nil {
			t.Error(err)
		}
	})
}
