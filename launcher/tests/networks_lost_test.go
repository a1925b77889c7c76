package tests

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/poll"
)

// A plugin's stager outlives the plugin's main process, without which no call reaches the plugin. Every command that needs
// the plugin starts it again with the configuration of the last setup.
func TestANetworkWhosePluginHasLostItsMainProcessGoesOn(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, misbehaving, "chatty")
	doc := harness.PodOf(suite.Shell("s", "sleep 1000"))
	m.connect("stays", doc, "chatty")
	m.LayersAreNow()
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		for _, tt := range []struct {
			name string
			use  func()
		}{
			{"run", func() { m.connect("p", doc, "chatty") }},
			{"stop", func() { m.Must("stop", "p") }},
			{"network validate", func() { m.Must("network", "validate", "chatty") }},
			{"gc", func() { m.Must("gc") }}, // the network is in use
		} {
			before := m.pluginOf("chatty").PID
			setups := strings.Count(m.calls("chatty"), "/setup")
			m.loseMain("chatty", signal)
			tt.use()
			if now := m.pluginOf("chatty").PID; now == before {
				t.Errorf("%s after %v: the plugin was not started again", tt.name, signal)
			}
			if strings.Count(m.calls("chatty"), "/setup") == setups {
				t.Errorf("%s after %v: the plugin was not set up again", tt.name, signal)
			}
		}
	}
}

// A plugin whose stager is killed while it starts is started again.
func TestAPluginThatIsKilledInItsStartIsStartedAgain(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, misbehaving, "chatty")
	killed := make(chan bool, 1)
	go func() {
		killed <- poll.Until(harness.Patience, time.Millisecond, func() bool {
			for _, pid := range m.Processes() {
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if strings.HasPrefix(string(line), names.Exec+"\x00") {
					return syscall.Kill(pid, syscall.SIGKILL) == nil
				}
			}
			return false
		})
	}()
	m.connect("p", harness.PodOf(suite.Shell("s", "exec sleep 1000")), "chatty")
	m.LayersAreNow()
	if !<-killed {
		t.Error("no process was killed")
	}
}

// A plugin that has lost its main process does not keep a network that has left the configuration.
func TestGCDeletesANetworkWhosePluginHasLostItsMainProcess(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, misbehaving, "chatty")
	p := m.connect("p", harness.PodOf(suite.Shell("s", "sleep 1000")), "chatty")
	m.LayersAreNow()
	m.Must("stop", p.Name)
	m.loseMain("chatty", syscall.SIGKILL)
	m.reconfigure("[]")
	if out := m.Must("gc"); strings.Count(out, "network chatty\n") != 1 {
		t.Errorf("gc: %q, want the network once", out)
	}
	if calls := m.calls("chatty"); strings.Count(calls, "/remove") != 1 {
		t.Errorf("calls %q, want one of remove", calls)
	}
}

// loseMain sends a signal to the main process of a plugin that runs, and waits until the launcher sees that the plugin has ended.
func (m *netMachine) loseMain(network string, signal syscall.Signal) {
	m.T.Helper()
	pid := m.mainProcess(network)
	if pid == 0 {
		m.T.Fatalf("the plugin of network %s has no main process", network)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		m.T.Fatal(err)
	}
	harness.Eventually(m.T, "the plugin has ended", func() bool { return !m.pluginState(network).Running })
}

// mainProcess returns the main process of a network's plugin, 0 if it has none.
func (m *netMachine) mainProcess(network string) int {
	stager := m.pluginOf(network).PID
	for _, pid := range m.mainProcesses() {
		if descends(pid, stager) {
			return pid
		}
	}
	return 0
}

// descends reports whether a process is a descendant of another one.
func descends(pid, ancestor int) bool {
	for pid > 1 && pid != ancestor {
		pid = parentOf(pid)
	}
	return pid == ancestor
}

// parentOf returns the parent of a process, 0 if the process has ended.
func parentOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	parent := 0
	_, _ = fmt.Sscanf(after, "%1s %d", new(string), &parent)
	return parent
}
