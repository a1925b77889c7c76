package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/capability"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/clause"
)

const (
	retainSet = "os/linux/capabilities-retain-set"
	removeSet = "os/linux/capabilities-remove-set"
)

// mask returns a capability set as /proc/PID/status shows it.
func mask(t *testing.T, names []string) string {
	t.Helper()
	var bits uint64
	for _, name := range names {
		for _, c := range capability.ListKnown() {
			if "CAP_"+strings.ToUpper(c.String()) == name {
				bits |= 1 << c
			}
		}
	}
	return fmt.Sprintf("%016x", bits)
}

func set(names ...string) string {
	text, err := json.Marshal(map[string][]string{"set": names})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// capabilityRows are eleven apps with eleven sets.
func capabilityRows() map[string]struct {
	isolators []string
	want      []string
} {
	all := spec.DefaultCapabilities()
	type row = struct{ isolators, want []string }
	return map[string]row{
		"default":       {nil, all},
		"privileged":    {[]string{"os/linux/privileged", "true"}, machine.Support().Capabilities},
		"one":           {[]string{retainSet, set("CAP_NET_BIND_SERVICE")}, []string{"CAP_NET_BIND_SERVICE"}},
		"other":         {[]string{retainSet, set("CAP_CHOWN")}, []string{"CAP_CHOWN"}},
		"two":           {[]string{retainSet, set("CAP_KILL", "CAP_MKNOD")}, []string{"CAP_KILL", "CAP_MKNOD"}},
		"beyond":        {[]string{retainSet, set("CAP_SYS_ADMIN", "CAP_NET_ADMIN")}, []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN"}},
		"high":          {[]string{retainSet, set("CAP_SYSLOG", "CAP_WAKE_ALARM")}, []string{"CAP_SYSLOG", "CAP_WAKE_ALARM"}},
		"none":          {[]string{removeSet, set(all...)}, nil},
		"without-chown": {[]string{removeSet, set("CAP_CHOWN")}, without(all, "CAP_CHOWN")},
		"without-some":  {[]string{removeSet, set("CAP_SETUID", "CAP_SETGID", "CAP_SYS_ADMIN")}, without(all, "CAP_SETUID", "CAP_SETGID")},
		"without-one":   {[]string{removeSet, set("CAP_AUDIT_WRITE"), removeSet, set("CAP_MKNOD")}, without(all, "CAP_AUDIT_WRITE", "CAP_MKNOD")},
	}
}

// Each app of a pod has exactly its own capabilities: as root all of its bounding set, as any
// other user none.
func TestElevenAppsHaveElevenCapabilitySets(t *testing.T) {
	clause.Covers(t, "C-CAP-01", "C-CAP-02")
	if got := mask(t, spec.DefaultCapabilities()); got != "00000000a80425fb" {
		t.Fatalf("the default set is %s", got)
	}
	rows := capabilityRows()
	for _, user := range []string{"0", "1000"} {
		t.Run("user "+user, func(t *testing.T) {
			var apps []testApp
			for _, name := range slices.Sorted(maps.Keys(rows)) {
				app := map[string]any{"exec": []string{"/bin/busybox", "grep", "^Cap", "/proc/self/status"}, "user": user, "group": user}
				app["isolators"] = isolatorList(rows[name].isolators...)
				apps = append(apps, testApp{Name: name, App: app})
			}
			p := launch(t, apps)
			seen := map[string]string{}
			for name, row := range rows {
				bounding, none := mask(t, row.want), mask(t, nil)
				want := map[string]string{"CapInh": none, "CapPrm": bounding, "CapEff": bounding, "CapBnd": bounding, "CapAmb": none}
				if user != "0" {
					want["CapPrm"], want["CapEff"] = none, none
				}
				checkCapabilities(t, p, name, want)
				if other, found := seen[bounding]; found {
					t.Errorf("%s and %s have the same set", name, other)
				}
				seen[bounding] = name
			}
		})
	}
}

func checkCapabilities(t *testing.T, p *testPod, app string, want map[string]string) {
	t.Helper()
	for range want {
		kind, value, _ := strings.Cut(p.line(app), ":\t")
		if value != want[kind] {
			t.Errorf("%s has %s %s, want %s", app, kind, value, want[kind])
		}
	}
}

// A command that run starts in an app also has the app's capabilities.
func TestRunHasTheCapabilitiesOfTheApp(t *testing.T) {
	clause.Covers(t, "C-CAP-02")
	app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolatorList(retainSet, set("CAP_KILL"))}}
	p := launch(t, []testApp{app})
	p.isReady()
	text := p.run("a", map[string]any{"exec": []string{"/bin/busybox", "grep", "-E", "Cap(Bnd|Eff)", "/proc/self/status"}, "user": "0", "group": "0"})
	own := mask(t, []string{"CAP_KILL"})
	if want := "CapEff:\t" + own + "\nCapBnd:\t" + own + "\n"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}

func TestBothCapabilitySetsAreRefused(t *testing.T) {
	clause.Covers(t, "C-CAP-02")
	app := testApp{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "isolators": isolatorList(retainSet, set("CAP_KILL"), removeSet, set("CAP_CHOWN"))}}
	p := launch(t, []testApp{app})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), "must not be used together") {
		t.Errorf("exit code %d\n%s", code, p.messages())
	}
}

// The isolators of an app also apply to its handlers and to commands that run starts in it.
func TestSeccompHoldsForHandlersAndRun(t *testing.T) {
	clause.Covers(t, "C-SEC-07")
	call := []string{"/bin/busybox", "chroot", "/", "/bin/echo", "chroot"}
	app := testApp{Name: "a", App: map[string]any{
		"exec":          []string{"/bin/sh", "-c", "chroot=$(busybox chroot / /bin/echo in 2>&1); echo \"$chroot\"; exec sleep 1000"},
		"eventHandlers": []map[string]any{{"name": "pre-start", "exec": []string{"/bin/sh", "-c", "busybox chroot / /bin/echo in; exit 0"}}},
		"isolators":     isolatorList("os/linux/seccomp-remove-set", `{"set": ["chroot"], "errno": "EXFULL"}`),
	}}
	p := launch(t, []testApp{app})
	p.isReady()
	const full = "chroot: can't change root directory to '/': Exchange full"
	if got := p.line("a"); got != full {
		t.Errorf("main: %q", got)
	}
	if got := p.callIn("logs", "a"); got != full+"\n" {
		t.Errorf("handler: %q", got)
	}
	if got := p.run("a", map[string]any{"exec": call, "user": "0", "group": "0"}); got != full+"\n" {
		t.Errorf("run: %q", got)
	}
}

// run runs a command in an app and returns its output. It ignores the exit code.
func (p *testPod) run(app string, settings map[string]any) string {
	p.t.Helper()
	text, err := json.Marshal(settings)
	p.must(err)
	file := p.create("settings")
	p.must(os.WriteFile(file.Name(), text, 0o600))
	cmd := p.callInCommand("run", app)
	cmd.ExtraFiles = []*os.File{file}
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return string(out)
}

func without(names []string, gone ...string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(gone, n) })
}
