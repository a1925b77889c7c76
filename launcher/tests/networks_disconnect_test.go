package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/tests/harness"
)

// unwilling is a plugin as a shell script, whose `del` fails while the file "fails" is in its folder.
const unwilling = `#!/bin/busybox sh
/bin/busybox cat >/dev/null
case ${0##*/} in
add) echo '{"ip4": {"ip": "10.0.0.9/24"}}' ;;
del) [ ! -e /var/lib/network/fails ] || { echo "out of order" >&2; exit 3; } ;;
esac
`

// A pod that a plugin does not disconnect ends all the same. The command that ends it fails with one line, which
// has the plugin's words and says what to do, and the pod stays until gc has disconnected it.
func TestAPluginThatDoesNotDisconnectAPodIsReported(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, unwilling, "bad")
	doc := harness.PodOf(suite.Shell("s", "echo up; exec sleep 1000"))
	p := m.connect("p", doc, "lo", "bad")
	m.LayersAreNow()
	fails := filepath.Join(m.networks, "bad/state/fails")
	if err := os.WriteFile(fails, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		r := m.Launcher(args...)
		if r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, want) ||
			!strings.Contains(r.Stderr, `network "bad": del: exit status 3: out of order`) {
			t.Errorf("%s: %+v, want one line with %q and the plugin's words", args, r, want)
		}
	}
	const again = `pod "p" has ended, but is still connected to its networks: `
	refused(again, "stop", "p")
	refused("; launcher gc tries again", "stop", "p")
	if info := m.ended(p.UUID); info.State != "exited" || !strings.Contains(info.DisconnectError, "out of order") {
		t.Errorf("a pod that is still connected: %+v", info)
	}
	refused(again, "gc")
	refused(again, "rm", "p")
	refused(again, "restart", "p")
	if all := m.PS(); len(all) != 2 || all[0].State != "exited" || all[1].State != "running" || all[1].Name != "p" {
		t.Errorf("pods after restart: %+v", all)
	}
	refused(`pod "p" is deleted, but its networks still hold resources for it: `, "rm", "--force", "p")

	temporary := strings.TrimSpace(m.Must("run", "--detach", "--rm", "--name", "p", "--net", "bad", m.Write("p.json", doc)))
	refused(again, "stop", "p")
	if info := m.ended(temporary); info.State != "dead" {
		t.Errorf("a pod of run --rm that is still connected: %+v", info)
	}
	refused(again, "run", "--rm", "--name", "p", "--net", "bad", m.Write("short.json", harness.PodOf(suite.Shell("s", "true"))))

	if err := os.Remove(fails); err != nil {
		t.Fatal(err)
	}
	if left := m.Must("network", "prune"); left != "" {
		t.Errorf("network prune stops the plugin of a network that pods still use: %s", left)
	}
	would := slices.Sorted(strings.Lines(m.Must("gc", "--dry-run")))
	done := slices.Sorted(strings.Lines(m.Must("gc")))
	if !slices.Equal(would, done) {
		t.Errorf("gc --dry-run: %q, gc: %q", would, done)
	}
	for _, want := range []string{"pod " + p.UUID + "\n", "pod " + temporary + "\n", "network bad\n"} {
		if !slices.Contains(done, want) {
			t.Errorf("gc with a plugin that works again: %q, want %q", done, want)
		}
	}
	if left := m.Must("ps", "--all", "--quiet"); left != "" {
		t.Errorf("left: pods\n%s", left)
	}
}

// The plugin of a network whose last pod has been disconnected is stopped, also while a command still shows the pod's
// output, and gc --dry-run says so.
func TestGCStopsTheNetworkOfAPodThatIsShown(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, unwilling, "free")
	p := m.connect("p", harness.PodOf(suite.Shell("s", "exec sleep 1000")), "free")
	m.LayersAreNow()
	m.Must("stop", "p")
	shown, err := (&pods.Pod{Dir: p.Dir}).KeepLogs()
	if err != nil {
		t.Fatal(err)
	}
	defer shown()
	if would, done := m.Must("gc", "--dry-run"), m.Must("gc"); done != "network free\n" || would != done {
		t.Errorf("gc --dry-run: %q, gc: %q", would, done)
	}
}

// endedPod is a pod in `ps --all --json`.
type endedPod struct{ UUID, State, DisconnectError string }

// ended returns a pod that has ended.
func (m *netMachine) ended(uuid string) endedPod {
	m.T.Helper()
	for line := range strings.Lines(m.Must("ps", "--all", "--json")) {
		var info endedPod
		if err := json.Unmarshal([]byte(line), &info); err != nil {
			m.T.Fatal(err)
		}
		if info.UUID == uuid {
			return info
		}
	}
	m.T.Fatalf("ps --all does not list pod %s", uuid)
	return endedPod{}
}
