package sandboxes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// writePlugins writes plugins that add their type, command and previous result to the file calls, and fail while a file
// fail-TYPE-COMMAND is there.
func writePlugins(t *testing.T, dir string, kinds ...string) {
	t.Helper()
	const script = `#!/bin/sh
cd ${0%/*}
kind=${0##*/}
echo $kind $CNI_COMMAND $(sed -n 's/.*"prevResult":.*"address":"\([^"]*\)".*/\1/p') ${CNI_NETNS:+in $(stat -Lc %i $CNI_NETNS)} >>calls
if [ -e fail-$kind-$CNI_COMMAND ]; then echo "{\"code\": 100, \"msg\": \"$kind fails\"}"; exit 1; fi
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.'$(wc -l <calls)'/24"}]}'
`
	for _, kind := range kinds {
		if err := os.WriteFile(filepath.Join(dir, kind), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// newSandbox returns a sandbox of three plugins with a pinned network namespace, and the number of that.
func newSandbox(t *testing.T, dir string) (*Maker, records.Sandbox) {
	t.Helper()
	writePlugins(t, dir, "first", "second", "third")
	pin := filepath.Join(dir, netPin)
	t.Cleanup(func() { _ = unmount(pin) })
	err := thread.New(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return networks.Pin("/proc/thread-self/ns/net", pin)
	})
	if err != nil {
		t.Fatal(err)
	}
	config := `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "first"}, {"type": "second"}, {"type": "third"}]}`
	return &Maker{CNI: CNI{PluginDirs: []string{dir}}}, records.Sandbox{ID: "sandbox", NetworkConfig: []byte(config)}
}

// takeCalls returns the calls of plugins since the last time.
func takeCalls(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), ", ")
}

// After an ADD that has failed, each plugin's DEL has the result of the plugins that had worked, and the network
// namespace, also in the calls after one that has failed. A plugin that fails does not keep the others from DEL.
func TestEachPluginDisconnectsASandbox(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	m, r := newSandbox(t, dir)
	set := func(file string) {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("fail-third-ADD")
	set("fail-second-DEL")
	if err := m.CNI.connect(t.Context(), dir, &r); err == nil || !strings.Contains(err.Error(), "third fails") {
		t.Errorf("connected: %v", err)
	}
	_ = takeCalls(t, dir)
	for range 2 {
		err := m.Stop(t.Context(), dir, r)
		if err == nil || !strings.Contains(err.Error(), "second fails") {
			t.Errorf("stopped: %v", err)
		}
		if !isPinned(t, filepath.Join(dir, netPin)) {
			t.Fatal("the network namespace is gone")
		}
		var pin unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, netPin), &pin); err != nil {
			t.Fatal(err)
		}
		for i, call := range strings.Split(takeCalls(t, dir), ", ") {
			kind := []string{"third", "second", "first"}[i]
			if !strings.HasPrefix(call, kind+" DEL 192.0.2.2/24 in ") {
				t.Errorf("call %q, want DEL of %s with the second's result", call, kind)
			}
		}
	}
	if err := os.Remove(filepath.Join(dir, "fail-second-DEL")); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context(), dir, r); err != nil || isPinned(t, filepath.Join(dir, netPin)) {
		t.Errorf("stopped: %v", err)
	}
}

// A plugin that is gone for good does not keep a sandbox for ever.
func TestASandboxEndsWithoutItsPlugin(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	m, r := newSandbox(t, dir)
	if err := m.CNI.connect(t.Context(), dir, &r); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "second")); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context(), dir, r); err == nil || !strings.Contains(err.Error(), "second") {
		t.Fatalf("stopped: %v", err)
	}
	since := time.Now().Add(-disconnectPatience)
	if err := os.Chtimes(filepath.Join(dir, failedFile), since, since); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context(), dir, r); err != nil || isPinned(t, filepath.Join(dir, netPin)) {
		t.Errorf("stopped: %v", err)
	}
}

func isPinned(t *testing.T, pin string) bool {
	t.Helper()
	pinned, err := networks.IsPinned(pin)
	if err != nil {
		t.Fatal(err)
	}
	return pinned
}

// DEL finds the pod's link with its addresses in each try, also in one after a DEL that has removed the link and failed.
func TestARepeatedDisconnectionHasTheLink(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	m, r := newSandbox(t, dir)
	const script = `#!/bin/sh
cd ${0%/*}
case $CNI_COMMAND in
ADD) echo '{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "192.0.2.7/24"}, {"version": "6", "address": "2001:db8::7/64"}]}' ;;
DEL)
	nsenter --net=$CNI_NETNS ip -o address show dev eth0 scope global | awk '{print $4}' >>calls
	nsenter --net=$CNI_NETNS ip link delete eth0
	[ ! -e fail ] || exit 1 ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "masquerading"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	r.NetworkConfig = []byte(`{"cniVersion": "0.3.1", "name": "test", "plugins": [{"type": "masquerading", "ipMasq": true}]}`)
	if err := m.CNI.connect(t.Context(), dir, &r); err != nil {
		t.Fatal(err)
	}
	fail := filepath.Join(dir, "fail")
	if err := os.WriteFile(fail, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "192.0.2.7/24, 2001:db8::7/64"
	for range 2 {
		if err := m.Stop(t.Context(), dir, r); err == nil {
			t.Error("stopped although the plugin fails")
		}
		if got := takeCalls(t, dir); got != want {
			t.Errorf("DEL finds the addresses %q, want %q", got, want)
		}
	}
	if err := os.Remove(fail); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context(), dir, r); err != nil {
		t.Error(err)
	}
	if got := takeCalls(t, dir); got != want {
		t.Errorf("DEL finds the addresses %q, want %q", got, want)
	}
}

// A DEL that fails because it has removed its rules before counts as done, once it has been called with each of the
// addresses that may still have rules. Another error stays.
func TestADisconnectionOfRemovedRulesIsDone(t *testing.T) {
	surroundings.Root(t)
	const (
		nft    = "running [/usr/sbin/iptables -t nat -D POSTROUTING -j CNI-1 --wait]: exit status 2: iptables v1.8.9 (nf_tables): Chain 'CNI-1' does not exist"
		legacy = "running [/usr/sbin/iptables -t nat -D POSTROUTING -j CNI-1 --wait]: exit status 2: iptables v1.8.9 (legacy): Couldn't load target `CNI-1':No such file or directory"
		script = `#!/bin/sh
cd ${0%/*}
if [ $CNI_COMMAND = ADD ]; then
	echo '{"cniVersion": "1.0.0", "ips": [{"address": "2001:db8::7/64"}, {"address": "192.0.2.7/24"}]}'
	exit
fi
found=$(nsenter --net=$CNI_NETNS ip -o address show dev eth0 scope global 2>/dev/null | awk '{print $4}')
echo $found. >>calls
nsenter --net=$CNI_NETNS ip link delete eth0 2>/dev/null
[ -n "$found" ] || exit 0
printf '{"code": 100, "msg": "%s"}' "$(cat message)"
exit 1
`
	)
	for name, test := range map[string]struct{ message, calls string }{
		"nftables":      {nft, "192.0.2.7/24 2001:db8::7/64., 2001:db8::7/64., ."},
		"legacy":        {legacy, "192.0.2.7/24 2001:db8::7/64., 2001:db8::7/64., ."},
		"another error": {"running [/usr/sbin/iptables]: exit status 4", "192.0.2.7/24 2001:db8::7/64."},
		"also another":  {nft + " running [/usr/sbin/ip6tables]: exit status 4", "192.0.2.7/24 2001:db8::7/64."},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m, r := newSandbox(t, dir)
			for file, text := range map[string]string{"masquerading": script, "message": test.message} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			r.NetworkConfig = []byte(`{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "masquerading", "ipMasq": true}]}`)
			if err := m.CNI.connect(t.Context(), dir, &r); err != nil {
				t.Fatal(err)
			}
			err := m.Stop(t.Context(), dir, r)
			if done := strings.HasSuffix(test.calls, ", ."); (err == nil) != done {
				t.Errorf("error %v", err)
			}
			if got := takeCalls(t, dir); got != test.calls {
				t.Errorf("DEL finds the addresses %q, want %q", got, test.calls)
			}
		})
	}
}
