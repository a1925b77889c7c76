package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// times returns a number of rounds or pods: the variable's, or usual.
func times(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// Pods that start at once get different addresses, and when they stop at once nothing is left of
// them. NETWORK_ROUNDS is how often, and NETWORK_PODS how many.
func TestManyPodsAreConnectedAtOnce(t *testing.T) {
	t.Parallel()
	pods := times(t, "NETWORK_PODS", 24)
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			m := newNetMachine(t, "["+bridgeEntry(backend)+"]")
			for range times(t, "NETWORK_ROUNDS", 1) {
				m.startAndStop(pods, "bridge", func(i int) string {
					doc := netPodDoc{harness.PodOf(suite.Shell("s", "sleep 1000")), []map[string]any{published("web", "tcp", 20000+i, 8080, 1)}}
					return m.Write(fmt.Sprintf("p%d.json", i), doc)
				})
				m.checkNetworks()
			}
		})
	}
}

// startAndStop starts as many pods at once, which must get addresses of their own in the network, and stops them at
// once. doc returns the manifest of a pod.
func (m *netMachine) startAndStop(pods int, network string, doc func(i int) string) {
	m.T.Helper()
	addresses := make(map[string]bool)
	for i, r := range m.together(pods, func(i int) []string {
		return []string{"run", "--detach", "--name", fmt.Sprint("p", i), "--net", network, doc(i)}
	}) {
		if r.Code != 0 {
			m.T.Fatalf("pod %d: %s", i, r.Stderr)
		}
		addresses[m.networksOf(&harness.Pod{Machine: m.Machine, UUID: strings.TrimSpace(r.Stdout)})[0].address(false)] = true
	}
	if len(addresses) != pods {
		m.T.Errorf("%d addresses of %d pods", len(addresses), pods)
	}
	for i, r := range m.together(pods, func(i int) []string { return []string{"stop", fmt.Sprint("p", i)} }) {
		if r.Code != 0 {
			m.T.Errorf("stop pod %d: %s", i, r.Stderr)
		}
	}
}

// together runs commands of the launcher at once.
func (m *netMachine) together(count int, args func(int) []string) []harness.Result {
	results := make([]harness.Result, count)
	var all sync.WaitGroup
	for i := range count {
		cmd := m.Command(args(i)...)
		all.Go(func() { results[i] = harness.Finish(m.T, cmd) })
	}
	all.Wait()
	return results
}

// A launcher that is killed at any moment of a pod's start or stop leaves what gc removes: no
// address, rule, link or namespace stays.
func TestNothingIsLeftOfALauncherThatWasKilled(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+bridgeEntry("iptables")+"]")
	doc := m.Write("p.json", netPodDoc{harness.PodOf(suite.Shell("s", "echo up; exec sleep 1000")), []map[string]any{published("web", "tcp", 20000, 8080, 1)}})
	m.connect("first", harness.PodOf(suite.Shell("s", "sleep 1000")), "bridge")
	m.killRuns(6, "bridge", doc, func() { m.leaves(1) })
	m.Must("stop", "first")
}

// killRuns starts pods on a network, whose plugin runs, and kills their launchers at random moments of the start and of the
// stop. After each, gc must work, and check is called. NETWORK_KILLS is how often, or few.
func (m *netMachine) killRuns(few int, network, doc string, check func()) {
	m.T.Helper()
	start := time.Now()
	m.Must("run", "--detach", "--name", "timed", "--net", network, doc)
	starting := time.Since(start)
	start = time.Now()
	m.Must("stop", "timed")
	stopping := time.Since(start)
	for i := range times(m.T, "NETWORK_KILLS", few) {
		moment := m.killRun(i%2 == 1, starting, stopping, network, doc)
		// A process that the launcher was starting has the pod's lock until its exec.
		harness.Eventually(m.T, "no live pod of the launcher that was killed", func() bool {
			return !slices.ContainsFunc(m.PS(), func(p harness.PodInfo) bool {
				return p.Name == "p" && p.State != "dead" && p.State != "exited"
			})
		})
		if r := m.Launcher("gc"); r.Code != 0 {
			m.T.Errorf("gc after a launcher that was killed after %v of its start (even) or stop (odd), round %d: %s", moment, i, r.Stderr)
		}
		check()
	}
}

// killRun starts a pod on a network and kills its launcher at a random moment of the start, or of the stop,
// which take about so long. It returns the moment.
func (m *netMachine) killRun(inStop bool, starting, stopping time.Duration, network, doc string) time.Duration {
	m.T.Helper()
	cmd := m.Command("run", "--name", "p", "--net", network, doc)
	up, err := cmd.StdoutPipe()
	if err != nil {
		m.T.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		m.T.Fatal(err)
	}
	moment := time.Duration(rand.Int64N(int64(starting)))
	if inStop {
		moment = time.Duration(rand.Int64N(int64(stopping)))
		if _, err := up.Read(make([]byte, 64)); err != nil {
			m.T.Fatalf("the pod is not up: %v", err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			m.T.Fatal(err)
		}
	}
	killed := time.AfterFunc(moment, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // killed, or done before
	killed.Stop()
	return moment
}

// leaves checks that as many pods are connected, by their addresses, links and namespaces.
func (m *netMachine) leaves(pods int) {
	m.T.Helper()
	addresses, _ := filepath.Glob(filepath.Join(m.networks, "*/run/cni/networks/bridge/10.*"))
	results, _ := filepath.Glob(filepath.Join(m.networks, "*/run/cache/results/*"))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.T.Fatal(err)
	}
	links := strings.Count(m.host.run("ip", "-o", "link", "show", "type", "veth"), "\n")
	pins := strings.Count(string(mounts), m.Pods)
	tables := m.host.run("iptables", "-t", "nat", "-S") + m.host.run("ip6tables", "-t", "nat", "-S")
	rules, ports := strings.Count(tables, "-A POSTROUTING -s "), strings.Count(tables, "-N CNI-DN-")
	if len(addresses) != pods || len(results) != pods || links != pods || pins != pods || rules != 2*pods || ports != 0 {
		m.T.Fatalf("%d addresses, %d results, %d links, %d namespaces, %d masquerade rules (2 a pod), %d published ports of %d pods", len(addresses), len(results), links, pins, rules, ports, pods)
	}
}
