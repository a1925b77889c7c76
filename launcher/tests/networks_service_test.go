package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/harness"
)

// A service manager stops a service by killing every process in the service's cgroup. The plugin that a
// launcher in it has started stays, because pods of others use it.
func TestThePluginThatAServiceHasStartedOutlivesIt(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+cniEntry("ptp", `"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}`)+"]")
	service := m.Cgroup + "-service"
	if err := daemon.MakeCgroup(service); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.RemoveCgroup(service); err != nil {
			t.Error(err)
		}
	})
	doc := harness.PodOf(suite.Shell("s", "echo up; exec sleep 1000"))
	cmd := m.Command("run", "--name", "service", "--net", "ptp", m.Write("service.json", doc))
	enter := `for file in /sys/fs/cgroup/$0/cgroup.procs /sys/fs/cgroup/*/$0/cgroup.procs; do [ ! -e "$file" ] || echo $$ >"$file"; done; exec "$@"`
	cmd.Args = append([]string{"/bin/sh", "-c", enter, service}, cmd.Args...)
	cmd.Path = "/bin/sh"
	up, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := up.Read(make([]byte, 64)); err != nil {
		t.Fatalf("the pod is not up: %v", err)
	}
	plugin := m.pluginOf("ptp")
	other := m.connect("other", doc, "ptp")
	if pids := killCgroup(t, service); len(pids) == 0 {
		t.Fatal("the service has no process")
	}
	_ = cmd.Wait() // killed
	if r := m.Launcher("stop", other.Name); r.Code != 0 {
		t.Errorf("stop: %+v", r)
	}
	if now := m.pluginOf("ptp"); now != plugin {
		t.Errorf("the plugin was process %d before the end of the service, and is %d", plugin.PID, now.PID)
	}
}

// pluginState is a network's plugin in `network inspect`.
type pluginState struct {
	Running bool
	PID     int
}

func (m *netMachine) pluginState(network string) pluginState {
	m.T.Helper()
	var state pluginState
	if err := json.Unmarshal([]byte(m.Must("network", "inspect", network)), &state); err != nil {
		m.T.Fatalf("plugin of network %s: %v", network, err)
	}
	return state
}

// pluginOf returns the state of a plugin that runs.
func (m *netMachine) pluginOf(network string) pluginState {
	m.T.Helper()
	state := m.pluginState(network)
	if !state.Running {
		m.T.Fatalf("the plugin of network %s does not run", network)
	}
	return state
}

// killPlugin kills the plugin of a network, which runs, and returns its process.
func (m *netMachine) killPlugin(network string) int {
	m.T.Helper()
	plugin := m.pluginOf(network).PID
	if err := syscall.Kill(plugin, syscall.SIGKILL); err != nil {
		m.T.Fatal(err)
	}
	harness.Eventually(m.T, "the plugin has ended", func() bool { return !m.pluginState(network).Running })
	return plugin
}

// killCgroup kills the processes of a cgroup, in every hierarchy, and returns them.
func killCgroup(t *testing.T, path string) []int {
	t.Helper()
	mounts, err := daemon.Hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, mount := range mounts {
		text, err := os.ReadFile(filepath.Join(mount, path, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && !slices.Contains(pids, pid) {
				pids = append(pids, pid)
			}
		}
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			t.Fatal(err)
		}
	}
	return pids
}
