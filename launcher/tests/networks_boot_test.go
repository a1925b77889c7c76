package tests

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// A machine that is restarted loses its pods, links and plugin containers, without a `del`. The next launch has every
// address again, although those of the dead pods have been given away on disk.
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
	m.restart(first)
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

// After a restart of the machine a pod is connected again, with its ports and its addresses, although the machine has no bridge and no
// rule any more, and the driver does not know its network.
func TestNetworksOfAnEarlierBootWorkAgain(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			name := uniqueDriver()
			m := newNetMachine(t, "["+bridgeEntry(backend)+","+remoteEntry(name, `"ipam": [{"subnet": "10.95.0.0/24", "gateway": "10.95.0.1/24"}], "capabilities": {"ips": true}`)+"]")
			world, d := m.withWorld(), m.driver(name)
			for _, text := range []string{"first", "second"} {
				p := m.connect("p", netPodDoc{harness.PodOf(server("s", text)), []map[string]any{published("web", "tcp", 18080, 8080, 1)}}, "bridge:ips=10.88.0.77", "remote:ips=10.95.0.77")
				answers(t, text+" 203.0.113.1", func() string { return world.fetch("203.0.113.2", 18080) })
				answers(t, text+" 10.95.0.1", func() string { return m.host.fetch("10.95.0.77", 8080) })
				if calls := d.methods(); strings.Count(calls, "CreateNetwork") != 1 {
					t.Errorf("calls of the %s boot: %s, want one of CreateNetwork", text, calls)
				}
				if text == "first" {
					d.stop()
					m.restart(p)
					d.start()
				}
			}
			m.Must("gc")
			answers(t, "second 203.0.113.1", func() string { return world.fetch("203.0.113.2", 18080) })
		})
	}
}

// restart does to the machine's networks what a restart does: the pods and the plugins, which run, end without a `del`, links and
// rules are gone, and what the disk has is of another boot.
func (m *netMachine) restart(pods ...*harness.Pod) {
	m.T.Helper()
	for _, p := range pods {
		for _, n := range m.networksOf(p) {
			m.killPlugin(n.Name)
		}
		m.kill(p.Name)
		if err := unix.Unmount(filepath.Join(m.Pods, p.UUID, "netns"), unix.MNT_DETACH); err != nil {
			m.T.Fatal(err)
		}
	}
	m.host.run("nft", "flush", "ruleset")
	for line := range strings.Lines(m.host.run("ip", "-o", "link", "show")) {
		name, _, _ := strings.Cut(strings.Fields(line)[1], "@")
		if name = strings.TrimSuffix(name, ":"); name != "lo" && name != m.uplink {
			_ = m.host.command("ip", "link", "delete", name).Run() // it has gone with its bridge, or its other end
		}
	}
	m.forgetBoot()
}

// forgetBoot changes the boot ID in the files of networks.
func (m *netMachine) forgetBoot() {
	m.T.Helper()
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		m.T.Fatal(err)
	}
	this, another := bytes.TrimSpace(boot), []byte("11111111-2222-3333-4444-555555555555")
	changed := 0
	err = filepath.WalkDir(m.networks, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(data, this) {
			return err
		}
		changed++
		return os.WriteFile(path, bytes.ReplaceAll(data, this, another), 0o600)
	})
	if err != nil || changed == 0 {
		m.T.Fatalf("%d files with the boot ID, %v", changed, err)
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
