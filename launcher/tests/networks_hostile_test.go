package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// misbehaving is a plugin as a shell script, whose `setup` or `add` does what the configuration's key "do" says.
const misbehaving = `#!/bin/busybox sh
config=$(/bin/busybox cat)
echo "$0 $*" >>/var/lib/network/calls
case ${0##*/}:$config in
setup:*unready*) echo "no such bridge" >&2; exit 4 ;;
setup:*stillborn*) kill -9 $$ ;;
add:*garbage*) echo hello world ;;
add:*flood*) exec /bin/busybox yes ;;
add:*hundred*) /bin/busybox yes | /bin/busybox head -c 100000000 ;;
add:*dies*) kill -9 $$ ;;
add:*fails*) echo "on stdout"; echo "no more addresses" >&2; exit 3 ;;
add:*hangs*) /bin/busybox sleep 3599 & /bin/busybox sleep 3599 ;;
add:*chatty*) echo words >&2; echo '{"ip4": {"ip": "10.0.0.9/24"}}' ;;
add:*noisy*) /bin/busybox yes | /bin/busybox head -c 100000000 >&2; echo '{}' ;;
add:*background*) /bin/busybox sleep 3598 & echo '{}' ;;
esac
`

// scriptPlugin makes a signed image of a plugin that is a shell script.
func scriptPlugin(t *testing.T, script string) (aci string) {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	for _, folder := range []string{"bin", "opt/network", "var/lib/network", "run/network"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("cp", "/bin/busybox", filepath.Join(root, "bin/busybox")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"setup", "add", "del", "remove"} {
		if err := os.WriteFile(filepath.Join(root, "opt/network", name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	manifest := filepath.Join(dir, "manifest.json")
	const text = `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/plugin",
		"labels": [{"name": "os", "value": "linux"}, {"name": "arch", "value": "amd64"}],
		"app": {"exec": ["/opt/network/setup"], "user": "0", "group": "0", "isolators": [{"name": "os/linux/privileged", "value": true}]}}`
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	aci = filepath.Join(dir, "plugin.aci")
	tool := filepath.Join(filepath.Dir(suite.Launcher), "aci")
	if out, err := exec.Command(tool, "--manifest", manifest, "--root", root, "--sign", "-o", aci).CombinedOutput(); err != nil {
		t.Fatalf("make plugin: %v: %s", err, out)
	}
	return aci
}

// newScriptMachine makes a machine with a network for each word, whose plugin is the script, and
// the network lo.
func newScriptMachine(t *testing.T, script string, words ...string) *netMachine {
	aci := scriptPlugin(t, script)
	entries := []string{`{"name": "lo", "aci": "kurma.io/stager/lo-netplugin"}`}
	for _, word := range words {
		entries = append(entries, fmt.Sprintf(`{"name": %q, "aci": %q, "containerInterface": "eth0", "do": %[1]q}`, word, "file://"+aci))
	}
	return newNetMachine(t, "["+strings.Join(entries, ",")+"]", ownPlugins, func(b *harness.Machine) {
		b.Keys = append(b.Keys, aci+".pub")
	})
}

// calls returns what the script's plugin of a network was called with, in words.
func (m *netMachine) calls(network string) string {
	text, _ := os.ReadFile(filepath.Join(m.networks, network, "state", "calls"))
	return string(text)
}

// A plugin that misbehaves costs its own pod's start: an error names the network, `del` is called if `add` was,
// nothing is left, and the other networks work.
func TestAPluginThatMisbehavesCostsItsPodOnly(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, misbehaving, "garbage", "flood", "hundred", "dies", "fails", "unready", "stillborn", "chatty", "noisy", "background")
	const all = "setup add del"
	for _, tt := range []struct{ network, words, calls string }{
		{"garbage", "not a result: hello world", all},
		{"flood", "more than 1048576 bytes printed", all},
		{"hundred", "more than 1048576 bytes printed", all},
		{"dies", "exit status 137", all},
		{"fails", "exit status 3: no more addresses on stdout", all},
		{"unready", "setup: exit status 4: no such bridge", "setup"},
		{"stillborn", "setup: exit status 137", "setup"},
	} {
		r := m.Launcher("run", "--detach", "--name", tt.network, "--net", "lo", "--net", tt.network, m.Write("pod.json", harness.PodOf(suite.Shell("s", "sleep 1000"))))
		if r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 || !strings.Contains(r.Stderr, fmt.Sprintf("network %q", tt.network)) || !strings.Contains(r.Stderr, tt.words) {
			t.Errorf("%s: %+v, want one line with the network and %q", tt.network, r, tt.words)
		}
		var calls []string
		for line := range strings.Lines(m.calls(tt.network)) {
			words := strings.Fields(line)
			calls = append(calls, filepath.Base(words[0]))
			if len(words) > 1 && (!strings.HasPrefix(words[1], "/proc/") || words[len(words)-1] != "eth0") {
				t.Errorf("%s: call %q", tt.network, line)
			}
		}
		if got := strings.Join(calls, " "); got != tt.calls {
			t.Errorf("%s: calls %s, want %s", tt.network, got, tt.calls)
		}
		if running := m.pluginState(tt.network).Running; running != (tt.calls == all) {
			t.Errorf("%s: the plugin runs: %t", tt.network, running)
		}
	}
	m.LayersAreNow() // the plugin's image is new in the store
	if left := m.PS(); len(left) != 0 {
		t.Errorf("left: pods %+v", left)
	}
	good := m.connect("good", harness.PodOf(suite.Shell("s", "sleep 1000")), "lo", "chatty")
	if nets := m.networksOf(good); len(nets) != 2 || nets[1].address(false) != "10.0.0.9" {
		t.Errorf("networks of a plugin that writes to stderr: %+v", nets)
	}
	log, err := os.ReadFile(filepath.Join(m.networks, "chatty", "log"))
	if err != nil || !strings.Contains(string(log), "add "+good.UUID+"\nwords\n") {
		t.Errorf("log of the plugin: %v, %q", err, log)
	}
	noisy := m.connect("noisy", harness.PodOf(suite.Shell("s", "sleep 1000")), "noisy")
	if nets := m.networksOf(noisy); len(nets) != 1 {
		t.Errorf("networks of a plugin that writes 100 MB to stderr: %+v", nets)
	}
	if info, err := os.Stat(filepath.Join(m.networks, "noisy", "log")); err != nil || info.Size() > 64<<10 {
		t.Errorf("its log: %v, %+v", err, info)
	}
	m.connect("background", harness.PodOf(suite.Shell("s", "sleep 1000")), "background")
}

// A plugin that hangs holds up its own pod alone; a launcher that is asked to stop meanwhile ends
// it with all of its processes, and undoes what it did.
func TestAPluginThatHangsIsEndedWithTheLaunch(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, misbehaving, "hangs")
	cmd := m.Command("run", "--name", "p", "--net", "hangs", m.Write("pod.json", harness.PodOf(suite.Shell("s", "sleep 1000"))))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the plugin hangs", func() bool { return strings.Contains(m.calls("hangs"), "/add") && m.sleepers() == 2 })
	m.LayersAreNow()
	m.connect("other", harness.PodOf(suite.Shell("s", "sleep 1000")), "lo")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the launch has succeeded")
		}
	case <-time.After(harness.Patience):
		t.Fatal("the launcher hangs with its plugin")
	}
	harness.Eventually(t, "no process of the plugin", func() bool { return m.sleepers() == 0 })
	if calls := m.calls("hangs"); strings.Count(calls, "/del") != 1 {
		t.Errorf("calls %q, want one of del", calls)
	}
	var info []harness.PodInfo
	for _, p := range m.PS() {
		if p.Name != "other" {
			info = append(info, p)
		}
	}
	if len(info) != 0 {
		left, _ := json.Marshal(info)
		t.Errorf("left: pods %s", left)
	}
}

// sleepers counts the machine's processes that sleep as the script's hanging plugin does.
func (m *netMachine) sleepers() int {
	n := 0
	for _, pid := range m.Processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(line), "sleep\x003599") {
			n++
		}
	}
	return n
}
