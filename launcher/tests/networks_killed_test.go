package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// A plugin whose main process or stager is killed at any moment of setup, add or del costs no pod its start or its end, and leaves
// no address, rule, link or namespace, and nothing with a network driver. NETWORK_KILLS is how often.
func TestAPluginThatIsKilledAtAnyMomentIsStartedAgain(t *testing.T) {
	t.Parallel()
	name := uniqueDriver()
	m := newNetMachine(t, "["+bridgeEntry("iptables")+","+remoteEntry(name, `"ipam": [{"subnet": "10.95.0.0/24", "gateway": "10.95.0.1/24"}]`)+"]")
	m.driver(name)
	doc := m.Write("p.json", netPodDoc{harness.PodOf(suite.Shell("s", "exec sleep 1000")), []map[string]any{published("web", "tcp", 20000, 8080, 1)}})
	start, stop := []string{"run", "--detach", "--name", "p", "--net", "bridge", "--net", "remote", doc}, []string{"stop", "p"}
	m.connect("first", harness.PodOf(suite.Shell("s", "exec sleep 1000")), "bridge")
	m.killPlugins()
	setup := m.timed(start)
	del := m.timed(stop)
	add := m.timed(start)
	m.Must(stop...)
	for i := range times(t, "NETWORK_KILLS", 6) {
		switch i % 3 {
		case 0:
			m.killPlugins()
			m.killPluginsIn("setup", setup, start)
			m.Must(stop...)
		case 1:
			m.killPluginsIn("add", add, start)
			m.Must(stop...)
		case 2:
			m.Must(start...)
			m.killPluginsIn("del", del, stop)
		}
		m.Must("gc")
		m.leaves(1)
	}
	m.Must("stop", "first")
	m.reconfigure("[]")
	m.Must("gc")
	if links := m.host.run("ip", "-o", "link"); strings.Contains(links, ": td") {
		t.Errorf("left: links of the driver\n%s", links)
	}
}

// timed runs a command of the launcher and returns how long it takes.
func (m *netMachine) timed(args []string) time.Duration {
	m.T.Helper()
	start := time.Now()
	m.Must(args...)
	return time.Since(start)
}

// killPluginsIn runs a command of the launcher, which takes about so long, and kills the machine's plugins at a random
// moment of it. The command must succeed.
func (m *netMachine) killPluginsIn(call string, takes time.Duration, args []string) {
	m.T.Helper()
	moment := time.Duration(rand.Int64N(int64(takes)))
	kill := time.AfterFunc(moment, m.killPlugins)
	r := m.Launcher(args...)
	kill.Stop()
	if r.Code != 0 {
		m.T.Errorf("%s, with the plugins killed after %v of %v of %s: %s", args, moment, takes, call, r.Stderr)
	}
}

// killPlugins kills the main process of each of the machine's plugins, or its stager.
func (m *netMachine) killPlugins() {
	all := m.Processes()
	for _, pid := range m.mainProcesses() {
		stager := parentOf(parentOf(pid)) // init is between them
		if rand.IntN(2) == 0 && slices.Contains(all, stager) {
			pid = stager
		}
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// mainProcesses returns the main processes of the machine's plugins.
func (m *netMachine) mainProcesses() []int {
	var mains []int
	for _, pid := range m.Processes() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(line), "/opt/network/.hold\x00") {
			mains = append(mains, pid)
		}
	}
	return mains
}
