package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// A plugin whose main process is killed at any moment of setup, add or del costs no pod its start or its end, and leaves
// no address, rule, link or namespace. NETWORK_KILLS is how often.
func TestAPluginThatIsKilledAtAnyMomentIsStartedAgain(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+bridgeEntry("iptables")+"]")
	doc := m.Write("p.json", netPodDoc{harness.PodOf(suite.Shell("s", "exec sleep 1000")), []map[string]any{published("web", "tcp", 20000, 8080, 1)}})
	start, stop := []string{"run", "--detach", "--name", "p", "--net", "bridge", doc}, []string{"stop", "p"}
	m.connect("first", harness.PodOf(suite.Shell("s", "exec sleep 1000")), "bridge")
	m.loseMain("bridge", syscall.SIGKILL)
	setup := m.timed(start)
	del := m.timed(stop)
	add := m.timed(start)
	m.Must(stop...)
	for i := range times(t, "NETWORK_KILLS", 6) {
		switch i % 3 {
		case 0:
			m.loseMain("bridge", syscall.SIGKILL)
			m.killPluginIn("setup", setup, start)
			m.Must(stop...)
		case 1:
			m.killPluginIn("add", add, start)
			m.Must(stop...)
		case 2:
			m.Must(start...)
			m.killPluginIn("del", del, stop)
		}
		m.Must("gc")
		m.leaves(1)
	}
	m.Must("stop", "first")
}

// timed runs a command of the launcher and returns how long it takes.
func (m *netMachine) timed(args []string) time.Duration {
	m.T.Helper()
	start := time.Now()
	m.Must(args...)
	return time.Since(start)
}

// killPluginIn runs a command of the launcher, which takes about so long, and kills the main processes of the machine's plugins
// at a random moment of it. The command must succeed.
func (m *netMachine) killPluginIn(call string, takes time.Duration, args []string) {
	m.T.Helper()
	moment := time.Duration(rand.Int64N(int64(takes)))
	kill := time.AfterFunc(moment, func() {
		for _, pid := range m.mainProcesses() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	})
	r := m.Launcher(args...)
	kill.Stop()
	if r.Code != 0 {
		m.T.Errorf("%s, with the plugin killed after %v of %v of %s: %s", args, moment, takes, call, r.Stderr)
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
