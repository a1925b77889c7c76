package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// late is a plugin whose `add` connects the pod when the test lets it.
const late = `#!/bin/busybox sh
/bin/busybox cat >/dev/null
echo "$0 $*" >>/var/lib/network/calls
case ${0##*/} in add)
	until [ -e /var/lib/network/go ]; do /bin/busybox sleep 0.01; done
	/bin/busybox nsenter --net="$1" /bin/busybox ip link add eth0 type bridge || exit 1
	echo '{"ip4": {"ip": "10.0.0.9/24"}, "dns": {"nameservers": ["192.0.2.53"]}}' ;;
esac
`

// A stager starts when its pod is connected: it finds the interfaces, whose kernel parameters it sets, and the name servers.
func TestAStagerStartsWhenItsPodIsConnected(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, late, "late")
	doc := harness.PodOf(suite.Shell("a", "cat /proc/sys/net/ipv4/conf/eth0/forwarding /etc/resolv.conf; exec sleep 1000"))
	doc.Isolators = []any{harness.Isolator("os/unix/sysctl", map[string]string{"net.ipv4.conf.eth0.forwarding": "1"})}
	file, started := m.Write("p.json", doc), make(chan harness.Result, 1)
	go func() { started <- m.Launcher("run", "--detach", "--name", "p", "--net", "late", file) }()
	connect := func() { _ = os.WriteFile(filepath.Join(m.networks, "late/state/go"), nil, 0o600) }
	t.Cleanup(connect)
	harness.Eventually(t, "the plugin waits", func() bool { return strings.Contains(m.calls("late"), "/add") })
	all := m.PS()
	if len(all) != 1 {
		t.Errorf("pods %+v", all)
	}
	for _, info := range all {
		if log, err := os.ReadFile(filepath.Join(m.Pods, info.UUID, "stager.log")); len(log) > 0 {
			t.Errorf("the stager starts before its pod is connected: %v, %q", err, log)
		}
	}
	connect()
	if r := <-started; r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	m.LayersAreNow() // the plugin's image is new in the store
	got, want := "", "1\nnameserver 192.0.2.53\n"
	harness.Eventually(t, "the app writes", func() bool {
		got = m.Launcher("logs", "p").Stdout
		return strings.HasSuffix(got, ".53\n")
	})
	if got != want {
		t.Errorf("the app writes %q, want %q", got, want)
	}
	m.Must("stop", "p")
}
