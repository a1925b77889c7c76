package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// A machine that is restarted loses its pods, links and plugin containers, without a `del`. The next launch has every
// address again, although those of the dead pods have been given away on disk. The test kills the processes, ends the
// pod's network namespace, and writes another boot ID into the record of the network.
func TestAddressesOfAnEarlierBootAreFree(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+cniEntry("ptp", `"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.89.0.0/30"}`)+"]")
	doc := harness.PodOf(suite.Shell("s", "sleep 1000"))
	first := m.connect("first", doc, "ptp") // takes the only address
	if got := m.networksOf(first)[0].address(false); got != "10.89.0.2" {
		t.Fatalf("address %s", got)
	}
	r := m.Launcher("run", "--detach", "--name", "second", "--net", "ptp", m.Write("pod.json", doc))
	if r.Code != 1 {
		t.Fatalf("a second pod in a subnet of one address: %+v", r)
	}
	m.kill(first.Name)
	m.killPlugin("ptp")
	if err := unix.Unmount(filepath.Join(m.Pods, first.UUID, "netns"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(m.networks, "ptp", "network.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(data, &record); err != nil || record["boot"] == nil {
		t.Fatalf("%v: %s", err, data)
	}
	record["boot"] = "another"
	if data, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	second := m.connect("second", doc, "ptp")
	if got := m.networksOf(second)[0].address(false); got != "10.89.0.2" {
		t.Errorf("address after a restart %s", got)
	}
	// The `del` of the dead pod must not free the address of the second.
	m.Must("gc")
	if r := m.Launcher("run", "--detach", "--name", "third", "--net", "ptp", m.Write("pod.json", doc)); r.Code != 1 {
		t.Errorf("a third pod in a subnet of one address: %+v", r)
	}
}

// kill kills the monitor of the latest pod of that name, as the end of the machine does.
func (m *netMachine) kill(name string) {
	m.T.Helper()
	var state struct{ Monitor struct{ PID int } }
	uuid := ""
	for _, info := range m.PS() {
		if info.Name != name {
			continue
		}
		uuid = info.UUID
		data, err := os.ReadFile(filepath.Join(m.Pods, info.UUID, "state.json"))
		if err != nil {
			m.T.Fatal(err)
		}
		if err := json.Unmarshal(data, &state); err != nil {
			m.T.Fatal(err)
		}
	}
	if err := syscall.Kill(state.Monitor.PID, syscall.SIGKILL); err != nil || state.Monitor.PID == 0 {
		m.T.Fatalf("kill monitor %d: %v", state.Monitor.PID, err)
	}
	harness.Eventually(m.T, "the pod is dead", func() bool {
		for _, info := range m.PS() {
			if info.UUID == uuid {
				return info.State == "dead"
			}
		}
		return true
	})
}
