package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/netplugins/plugin"
)

// testDir is the variable by which this program is the plugin, with its folders there, if it is called as setup, add or
// del.
const testDir = "CNI_TEST_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(testDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	plugin.Main(&cni{
		path: []string{dir + "/plugins"}, cache: dir + "/cache", data: dir + "/data", backend: dir + "/backend",
		idle: os.Getenv("NETWORK_IDLE") != "", pods: podsOf(os.LookupEnv("NETWORK_PODS")),
	})
}

// newNetwork moves the test into a network namespace of its own, in which loopback is up.
func newNetwork(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // which ends with the test, and so does its network namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// faulty stands for a CNI plugin: it executes the plugin, but in call number $FAULT it fails, or kills the process
// $VICTIM, before the plugin's work or after it.
const faulty = `#!/bin/sh
real=%s/${0##*/}
case $CNI_COMMAND in ADD | DEL) ;; *) exec "$real" ;; esac
[ -n "$FAULT" ] || exec "$real"
n=$(($(cat %[2]s/calls) + 1))
echo $n >%[2]s/calls
[ $n = "$FAULT" ] || exec "$real"
case $MODE in *after) "$real" >/dev/null ;; esac
case $MODE in kill*) kill -9 "$VICTIM" ;; esac
echo '{"code": 100, "msg": "a fault"}'
exit 1
`

// machine is a network namespace with the plugin.
type machine struct {
	*testing.T
	dir, config string
	pod         *exec.Cmd
	namespace   string // the pod's
}

const testPod = "01234567-89ab-4def-8123-456789abcdef"

// newMachine makes a machine with a network that has links, addresses and rules of all kinds, and a pod's namespace.
func newMachine(t *testing.T, plugins, backend string) *machine {
	newNetwork(t)
	m := &machine{T: t, dir: t.TempDir()}
	for _, dir := range []string{"plugins", "cache", "data"} {
		if err := os.Mkdir(filepath.Join(m.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	real, err := os.ReadDir(plugins)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range real {
		path := filepath.Join(m.dir, "plugins", p.Name())
		if err := os.WriteFile(path, fmt.Appendf(nil, faulty, plugins, m.dir), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	program, err := os.Executable()
	m.must(err)
	for _, call := range []string{"setup", "add", "del"} {
		m.must(os.Symlink(program, filepath.Join(m.dir, call)))
	}
	firewall := `, {"type": "firewall", "backend": "iptables"}`
	if backend == nftablesBackend {
		firewall = "" // it has no such backend
	}
	m.config = fmt.Sprintf(`{"name": "kurma", "cniVersion": "1.0.0", "containerInterface": "eth0", "plugins": [
		{"type": "bridge", "bridge": "kurma", "isGateway": true, "ipMasq": true, "ipMasqBackend": %[1]q, "ipam": {
			"type": "host-local", "dataDir": %[2]q, "routes": [{"dst": "0.0.0.0/0"}],
			"ranges": [[{"subnet": "10.97.0.0/16"}], [{"subnet": "fd00:97::/64"}]]}},
		{"type": "portmap", "backend": %[1]q, "capabilities": {"portMappings": true}}%[3]s,
		{"type": "bandwidth", "capabilities": {"bandwidth": true}}],
		"runtimeConfig": {"portMappings": [{"hostPort": 5353, "containerPort": 53, "protocol": "udp"}],
			"bandwidth": {"ingressRate": 1000000, "ingressBurst": 1000000, "egressRate": 1000000, "egressBurst": 1000000}}}`,
		backend, filepath.Join(m.dir, "data", "networks"), firewall)
	m.makePod()
	t.Cleanup(func() { m.endPod() })
	return m
}

// makePod makes the pod's network namespace, in which a process is.
func (m *machine) makePod() {
	m.pod = exec.Command("cat")
	m.pod.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	stdin, err := m.pod.StdinPipe() // which ends with this program, and so does cat
	m.must(err)
	m.must(m.pod.Start())
	m.namespace = fmt.Sprintf("/proc/%d/ns/net", m.pod.Process.Pid)
	m.Cleanup(func() { stdin.Close() })
}

func (m *machine) endPod() {
	m.must(m.pod.Process.Kill())
	_ = m.pod.Wait() // killed
}

// call calls the plugin with variables.
func (m *machine) call(name string, env ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	script := fmt.Sprintf("export VICTIM=$$; exec %s/%s", m.dir, name)
	if name != "setup" {
		script += fmt.Sprintf(" %s %s eth0", m.namespace, testPod)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), append(env, testDir+"="+m.dir)...)
	cmd.Stdin = strings.NewReader(m.config)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// withFault is call with a fault in that call of a CNI plugin, of those of a round.
func (m *machine) withFault(name string, fault int, mode string) error {
	return m.call(name, fmt.Sprintf("FAULT=%d", fault), "MODE="+mode)
}

// must fails the test for an error.
func (m *machine) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// send sends a datagram to the port that the pod publishes, so that the kernel tracks a flow to the pod.
func (m *machine) send() {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) // of this thread's network
	m.must(err)
	defer func() { _ = unix.Close(socket) }()
	m.must(unix.Sendto(socket, []byte("x"), 0, &unix.SockaddrInet4{Addr: [4]byte{10, 97, 0, 1}, Port: 5353}))
	if len(m.flows()) == 0 {
		m.Error("the kernel tracks no flow to the pod")
	}
}

// flows returns the flows from and to the pods' addresses, but the gateway's.
func (m *machine) flows() []string {
	subnet := netip.MustParsePrefix("10.97.0.0/16")
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	m.must(err)
	var own []string
	for _, flow := range all {
		if source, ok := netip.AddrFromSlice(flow.Reverse.SrcIP.To4()); ok && subnet.Contains(source) && source.As4()[3] != 1 {
			own = append(own, flow.String())
		}
	}
	return own
}

var counters = regexp.MustCompile(`packets \d+ bytes \d+`)

// state is all that a pod could leave.
func (m *machine) state() []string {
	m.Helper()
	ruleset, err := exec.Command("nft", "list", "ruleset").CombinedOutput() // that of iptables as well
	m.must(err)
	all := strings.Split(counters.ReplaceAllString(string(ruleset), "packets 0 bytes 0"), "\n")
	links, err := netlink.LinkList()
	m.must(err)
	for _, link := range links {
		all = append(all, "link "+link.Attrs().Name)
	}
	for _, pattern := range []string{"data/networks/*/*.*.*.*", "data/networks/*/*:*", "cache/*/*"} {
		files, err := filepath.Glob(filepath.Join(m.dir, pattern))
		m.must(err)
		for _, file := range files {
			all = append(all, strings.TrimPrefix(file, m.dir))
		}
	}
	return append(all, m.flows()...)
}

// await waits until the state is the wanted one: the kernel removes the links of a namespace some time after its last
// process.
func (m *machine) await(want []string, after string) {
	m.Helper()
	for late := time.Now().Add(20 * time.Second); ; {
		state := m.state()
		if slices.Equal(state, want) {
			return
		}
		if time.Now().After(late) {
			isWanted := func(line string) bool { return slices.Contains(want, line) }
			m.Fatalf("%s: %q is there beside what is wanted, in\n%s", after, slices.DeleteFunc(slices.Clone(state), isWanted),
				strings.Join(state, "\n"))
		}
	}
}

// buildPlugins builds the CNI project's plugins.
func buildPlugins(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-o", dir}
	for _, name := range []string{"main/bridge", "ipam/host-local", "meta/portmap", "meta/firewall", "meta/bandwidth"} {
		args = append(args, "github.com/containernetworking/plugins/plugins/"+name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build plugins: %v: %s", err, out)
	}
	return dir
}

// After an add or del in which one plugin fails, or with which the plugin is killed, at any call of a CNI plugin,
// nothing of the pod stays: neither after del, nor, without the pod's network namespace, after the next setup.
func TestNothingOfAPodStays(t *testing.T) {
	plugins := buildPlugins(t)
	modes := []string{"kill", "fail after", "kill after", "fail"}
	for _, backend := range []string{iptablesBackend, nftablesBackend} {
		t.Run(backend, func(t *testing.T) {
			m := newMachine(t, plugins, backend)
			adds, dels := m.cleanRound()
			clean := m.state()
			first := 1
			if backend == nftablesBackend {
				first += adds // add is as with iptables
			}
			for fault := first; fault <= adds+dels; fault++ {
				mode := modes[fault%len(modes)]
				m.fail(fault, adds, mode)
				if fault%3 > 0 {
					m.must(m.call("del"))
				} else {
					m.endPod()
					m.must(m.call("setup", "NETWORK_IDLE=1", "NETWORK_PODS="))
					m.makePod()
				}
				m.await(clean, fmt.Sprintf("%s in call %d of %d+%d", mode, fault, adds, dels))
			}
		})
	}
}

// The plugin firewall succeeds although iptables has failed.
func TestFirewallsRulesGoThoughItsIptablesFails(t *testing.T) {
	m := newMachine(t, buildPlugins(t), iptablesBackend)
	m.cleanRound()
	clean := m.state()
	for _, name := range []string{"iptables", "ip6tables"} {
		path, err := exec.LookPath(name)
		m.must(err)
		script := fmt.Sprintf(`#!/bin/sh
case $(cat /proc/$PPID/comm)" $*" in
"firewall "*"-D CNI-FORWARD "*) exit 4 ;;
esac
exec %s "$@"
`, path)
		m.must(os.WriteFile(filepath.Join(m.dir, name), []byte(script), 0o700)) //nolint:gosec // a program
	}
	m.must(m.call("add"))
	m.must(m.call("del", "PATH="+m.dir+":"+os.Getenv("PATH")))
	m.await(clean, "firewall could not remove its rules")
}

// fail has the plugin's add or del fail by the fault.
func (m *machine) fail(fault, adds int, mode string) {
	m.Helper()
	m.must(os.WriteFile(filepath.Join(m.dir, "calls"), []byte("0"), 0o600))
	if fault <= adds {
		if err := m.withFault("add", fault, mode); err == nil {
			m.Error("add has not failed")
		}
		return
	}
	m.must(m.call("add"))
	m.send()
	if err := m.withFault("del", fault-adds, mode); err == nil {
		m.Errorf("del has not failed: %s in call %d", mode, fault-adds)
	}
}

// cleanRound connects a pod and disconnects it, and returns the numbers of CNI plugins' calls.
func (m *machine) cleanRound() (adds, dels int) {
	m.Helper()
	count := func(call string) int {
		m.must(os.WriteFile(filepath.Join(m.dir, "calls"), []byte("0"), 0o600))
		m.must(m.withFault(call, 0, ""))
		text, err := os.ReadFile(filepath.Join(m.dir, "calls"))
		m.must(err)
		number, err := strconv.Atoi(strings.TrimSpace(string(text)))
		m.must(err)
		return number
	}
	adds = count("add")
	m.send()
	dels = count("del")
	for _, line := range m.state() {
		if strings.Contains(line, testPod[:8]) || strings.Contains(line, "10.97.0.2") {
			m.Errorf("left by a clean round: %s", line)
		}
	}
	if adds < 4 || dels < 4 {
		m.Fatalf("%d, %d calls", adds, dels)
	}
	return adds, dels
}
