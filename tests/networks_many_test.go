package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// times returns a number of rounds: that of the variable, or few.
func times(t *testing.T, variable string, few int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Pods that start at once get different addresses, and when they stop at once nothing is left of
// them. NETWORK_ROUNDS is how often.
func TestManyPodsAreConnectedAtOnce(t *testing.T) {
	const pods = 24
	for _, backend := range []string{"iptables", "nftables"} {
		t.Run(backend, func(t *testing.T) {
			m := newNetMachine(t, "["+bridgeEntry(backend)+"]")
			for range times(t, "NETWORK_ROUNDS", 1) {
				results := m.together(pods, func(i int) []string {
					doc := netPodDoc{podOf(shell("s", "sleep 1000")), []map[string]any{
						{"name": "web", "hostPort": 20000 + i, "podPort": map[string]any{"name": "web", "protocol": "tcp", "port": 8080}},
					}}
					return []string{"run", "--detach", "--name", fmt.Sprint("p", i), "--net", "bridge", m.write(fmt.Sprintf("p%d.json", i), doc)}
				})
				addresses := make(map[string]bool)
				for i, r := range results {
					if r.code != 0 {
						t.Errorf("pod %d: %s", i, r.stderr)
						continue
					}
					nets := m.networksOf(&pod{machine: m.machine, uuid: strings.TrimSpace(r.stdout)})
					addresses[nets[0].address(false)] = true
				}
				if len(addresses) != pods {
					t.Errorf("%d addresses of %d pods", len(addresses), pods)
				}
				for i, r := range m.together(pods, func(i int) []string { return []string{"stop", fmt.Sprint("p", i)} }) {
					if r.code != 0 {
						t.Errorf("stop pod %d: %s", i, r.stderr)
					}
				}
				m.checkNetworks()
			}
		})
	}
}

// together runs commands of the launcher at once.
func (m *netMachine) together(count int, args func(int) []string) []result {
	results := make([]result, count)
	var all sync.WaitGroup
	for i := range count {
		cmd := m.command(args(i)...)
		all.Go(func() { results[i] = finish(m.t, cmd) })
	}
	all.Wait()
	return results
}

// A launcher that is killed at any moment of a pod's start or stop leaves what gc removes: no
// address, rule, link or namespace stays. NETWORK_KILLS is how often.
func TestNothingIsLeftOfALauncherThatWasKilled(t *testing.T) {
	m := newNetMachine(t, "["+bridgeEntry("iptables")+"]")
	doc := m.write("p.json", netPodDoc{podOf(shell("s", "echo up; exec sleep 1000")), []map[string]any{
		{"name": "web", "hostPort": 20000, "podPort": map[string]any{"name": "web", "protocol": "tcp", "port": 8080}},
	}})
	// How long a start and a stop take, with a plugin that runs.
	m.connect("first", podOf(shell("s", "sleep 1000")), "bridge")
	start := time.Now()
	m.must("run", "--detach", "--name", "timed", "--net", "bridge", doc)
	starting := time.Since(start)
	start = time.Now()
	m.must("stop", "timed")
	stopping := time.Since(start)
	for i := range times(t, "NETWORK_KILLS", 6) {
		moment := m.killRun(i%2 == 1, starting, stopping, "bridge", doc)
		if r := m.launcher("gc"); r.code != 0 {
			t.Errorf("gc after a launcher that was killed after %v of its start (even) or stop (odd), round %d: %s", moment, i, r.stderr)
		}
		m.leaves(1)
	}
	m.must("stop", "first")
}

// killRun starts a pod on a network and kills its launcher at a random moment of the start, or of the stop,
// which take about so long. It returns the moment.
func (m *netMachine) killRun(inStop bool, starting, stopping time.Duration, network, doc string) time.Duration {
	m.t.Helper()
	cmd := m.command("run", "--name", "p", "--net", network, doc)
	up, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	moment := time.Duration(rand.Int64N(int64(starting)))
	if inStop {
		moment = time.Duration(rand.Int64N(int64(stopping)))
		if _, err := up.Read(make([]byte, 64)); err != nil {
			m.t.Fatalf("the pod is not up: %v", err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			m.t.Fatal(err)
		}
	}
	killed := time.AfterFunc(moment, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // killed, or done before
	killed.Stop()
	return moment
}

// leaves checks that as many pods are connected, by their addresses, links and namespaces.
func (m *netMachine) leaves(pods int) {
	m.t.Helper()
	addresses, _ := filepath.Glob(filepath.Join(m.networks, "*/run/cni/networks/bridge/10.*"))
	results, _ := filepath.Glob(filepath.Join(m.networks, "*/run/cache/results/*"))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.t.Fatal(err)
	}
	links := strings.Count(m.host.run("ip", "-o", "link", "show", "type", "veth"), "\n")
	pins := strings.Count(string(mounts), m.pods)
	tables := m.host.run("iptables", "-t", "nat", "-S") + m.host.run("ip6tables", "-t", "nat", "-S")
	rules, ports := strings.Count(tables, "-A POSTROUTING -s "), strings.Count(tables, "-N CNI-DN-")
	if len(addresses) != pods || len(results) != pods || links != pods || pins != pods || rules != 2*pods || ports != 0 {
		m.t.Fatalf("%d addresses, %d results, %d links, %d namespaces, %d masquerade rules (2 a pod), %d published ports of %d pods", len(addresses), len(results), links, pins, rules, ports, pods)
	}
}
