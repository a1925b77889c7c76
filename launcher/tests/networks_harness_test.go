package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/poll"
)

// pluginNames are the images of network plugins that `make aci` builds.
func pluginNames() []string { return []string{"lo", "cni", "remote", "sample"} }

// pluginACI returns the file of a plugin's image.
func pluginACI(name string) string {
	return filepath.Join(filepath.Dir(suite.StagerACI), name+"-netplugin.aci")
}

// networkStore is an image store with the plugins beside the suite's images; the first test that
// needs it makes it.
var networkStore struct {
	sync.Once
	dir string
	err error
}

func makeNetworkStore() (string, error) {
	networkStore.Do(func() {
		dir := filepath.Join(filepath.Dir(suite.Store), "networks")
		files := []string{suite.StagerACI, filepath.Join(suite.Images, "busybox.aci")}
		for _, name := range pluginNames() {
			files = append(files, pluginACI(name))
		}
		if networkStore.err = os.Mkdir(dir, 0o700); networkStore.err != nil {
			return
		}
		web, err := webImage(dir)
		if err != nil {
			networkStore.err = err
			return
		}
		files = append(files, web)
		args := append([]string{"--state", dir, "image", "import"}, files...)
		if out, err := exec.Command(suite.Launcher, args...).CombinedOutput(); err != nil {
			networkStore.err = fmt.Errorf("import plugins: %w: %s", err, out)
		}
		networkStore.dir = filepath.Join(dir, "images")
	})
	return networkStore.dir, networkStore.err
}

// netns is a network namespace of a test, held by a process in it.
type netns struct {
	t    *testing.T
	hold *exec.Cmd
}

// newNetns makes a network namespace with loopback up, which ends with the test.
func newNetns(t *testing.T) *netns {
	t.Helper()
	n := &netns{t, exec.Command("unshare", "--net", "/bin/busybox", "sh", "-c", "/bin/busybox ip link set lo up && echo up && exec /bin/busybox cat")}
	stdin, err := n.hold.StdinPipe() // its end ends the process
	stdout, outErr := n.hold.StdoutPipe()
	if err := errors.Join(err, outErr, n.hold.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = n.hold.Wait()
	})
	if _, err := stdout.Read(make([]byte, 8)); err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	return n
}

// enter returns the words by which a command runs in the namespace.
func (n *netns) enter() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", n.hold.Process.Pid)}
}

// command returns a command in the namespace.
func (n *netns) command(args ...string) *exec.Cmd {
	args = append(n.enter(), args...)
	return exec.Command(args[0], args[1:]...)
}

// run runs a command in the namespace, which must succeed, and returns its stdout.
func (n *netns) run(args ...string) string {
	n.t.Helper()
	r := harness.Finish(n.t, n.command(args...))
	if r.Code != 0 {
		n.t.Fatalf("%s: exit status %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// serve runs a server in the namespace that sends each client its address, or a text.
func (n *netns) serve(address string, port int, text string) {
	n.t.Helper()
	n.background(port, "/bin/busybox", "sh", "-c", serveScript(n.t.TempDir(), address, port, text))
}

// background runs a server in the namespace until the test ends, and waits until it listens on the port.
func (n *netns) background(port int, args ...string) {
	n.t.Helper()
	cmd := n.command(args...)
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	n.awaitPort(port)
}

// awaitPort waits until a server in the namespace listens on the port.
func (n *netns) awaitPort(port int) {
	n.t.Helper()
	harness.Eventually(n.t, "the server listens", func() bool {
		return strings.Contains(n.run("/bin/busybox", "netstat", "-ltn"), fmt.Sprintf(":%d ", port))
	})
}

// serveScript is a shell script that serves HTTP: the page is text and the client's address.
func serveScript(dir, address string, port int, text string) string {
	return fmt.Sprintf(`busybox=; [ ! -x /bin/busybox ] || busybox=/bin/busybox
		$busybox mkdir -p %[1]s/cgi-bin && cd %[1]s
		printf '#!/bin/sh\nprintf "Content-Type: text/plain\\r\\n\\r\\n"\necho "%[4]s $REMOTE_ADDR"\n' >cgi-bin/who
		$busybox chmod +x cgi-bin/who && exec $busybox httpd -f -h %[1]s -p %[2]s:%[3]d`, dir, address, port, text)
}

// getScript is a shell script that prints a server's answer, the page with its header. busybox is the program that has
// nc, "" if nc is a program of its own.
func getScript(busybox, address string, port int, path string) string {
	return fmt.Sprintf(`printf 'GET %s HTTP/1.0\r\n\r\n' | %s nc -w 3 %s %d`, path, busybox, address, port)
}

// runTool runs a program that make has built.
func runTool(name string, args ...string) error {
	out, err := exec.Command(filepath.Join(filepath.Dir(suite.Launcher), name), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// bodyOf returns the text of a page, without the signs of IPv6 around the client's address.
func bodyOf(answer string) string {
	_, body, _ := strings.Cut(answer, "\r\n\r\n")
	return strings.TrimSpace(strings.NewReplacer("[", "", "]", "", "::ffff:", "").Replace(body))
}

// who is the page of the servers.
const who = "/cgi-bin/who"

// get reads a page of a server, from inside the namespace; "" if there is no answer.
func (n *netns) get(address string, port int, path string) string {
	n.t.Helper()
	return harness.Finish(n.t, n.command("/bin/busybox", "sh", "-c", getScript("/bin/busybox", address, port, path))).Stdout
}

// fetch is get of the page who, without its header.
func (n *netns) fetch(address string, port int) string {
	n.t.Helper()
	return bodyOf(n.get(address, port, who))
}

// join connects the namespace to another one by a pair of links, with these addresses.
func (n *netns) join(other *netns, name, here, otherName, there string) {
	n.t.Helper()
	n.run("ip", "link", "add", name, "type", "veth", "peer", "name", otherName, "netns", strconv.Itoa(other.hold.Process.Pid))
	for _, end := range []struct {
		n             *netns
		link, address string
	}{{n, name, here}, {other, otherName, there}} {
		for _, address := range strings.Fields(end.address) {
			end.n.run("ip", "addr", "add", address, "dev", end.link, "nodad")
		}
		end.n.run("ip", "link", "set", end.link, "up")
	}
}

// netMachine is a machine in a network namespace of its own, with networks.
type netMachine struct {
	*harness.Machine
	host     *netns
	networks string   // the launcher's folder of networks
	uplink   string   // the link to the world
	after    []func() // what the test's end ends last
}

// newNetMachine makes a machine with networks: the entries of container_networks. At the test's end, when
// pods and plugins are stopped, nothing may be left of them.
func newNetMachine(t *testing.T, networks string, options ...harness.Option) *netMachine {
	t.Helper()
	store, err := makeNetworkStore()
	if err != nil {
		t.Fatal(err)
	}
	host := newNetns(t)
	network, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", host.hold.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "networks")
	keys := []string{suite.StagerACI + ".pub"}
	for _, name := range pluginNames() {
		keys = append(keys, pluginACI(name)+".pub")
	}
	b := suite.NewMachine(t, func(b *harness.Machine) {
		b.Store, b.Shared, b.Inside = store, true, host.enter()
		b.Network = network
		for _, o := range options {
			o(b)
		}
		b.Config["trustedKeys"], b.Config["networksDirectory"] = append(keys, b.Keys...), dir
		b.Config["container_networks"] = json.RawMessage(networks)
	})
	m := &netMachine{b, host, dir, "none", nil}
	t.Cleanup(m.closeNetworks)
	return m
}

// closeNetworks stops the pods and the plugins, and checks what is left of the networks.
func (m *netMachine) closeNetworks() {
	for _, f := range m.after {
		defer f()
	}
	for _, info := range m.PS() {
		if r := m.Launcher("stop", info.UUID); r.Code != 0 {
			m.T.Errorf("stop pod %s: %s", info.Name, r.Stderr)
		}
	}
	if r := m.Launcher("gc"); r.Code != 0 {
		m.T.Errorf("gc: %s", r.Stderr)
	}
	m.checkNetworks()
	if m.T.Failed() {
		logs, _ := filepath.Glob(filepath.Join(m.networks, "*", "log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			m.T.Logf("%s:\n%s", log, text)
		}
	}
}

// checkNetworks checks that no address, result, rule, link or namespace of a pod is left.
func (m *netMachine) checkNetworks() {
	m.T.Helper()
	for _, pattern := range []string{"*/run/cni/networks/*/*", "*/run/cache/results/*", "*/run/cache/del-*"} {
		files, _ := filepath.Glob(filepath.Join(m.networks, pattern))
		for _, file := range files {
			if name := filepath.Base(file); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
				text, _ := os.ReadFile(file)
				m.T.Errorf("left: %s: %q", file, text)
			}
		}
	}
	if links := m.host.run("ip", "-o", "link", "show", "type", "veth"); strings.Count(links, "\n") != m.ownLinks() {
		m.T.Errorf("left: links\n%s", links)
	}
	// With a pod go its rules; chains that plugins share stay, without rules of a pod.
	rules := m.host.run("nft", "list", "ruleset")
	if left := regexp.MustCompile(`CNI-[0-9a-f]{24}|CNI-[DS]N-|dnat (ip )?to|[sd]addr (10\.|fd00)`).FindAllString(rules, -1); left != nil {
		m.T.Errorf("left: rules with %q\n%s", left, rules)
	}
}

// ownLinks counts the test's own pairs of links.
func (m *netMachine) ownLinks() int {
	return strings.Count(m.host.run("ip", "-o", "link", "show"), ": "+m.uplink+"@")
}

// ownPlugins makes an image store for the machine, into which its plugins' images are imported: the tests that share
// the other one run at the same time. It has the stager, busybox and the plugin lo.
func ownPlugins(b *harness.Machine) {
	b.Store, b.Shared = filepath.Join(b.Dir, "images"), false
	b.Images = append(b.Images, filepath.Join(suite.Images, "busybox.aci"), pluginACI("lo"))
}

// netPodDoc is a pod manifest with ports.
type netPodDoc struct {
	harness.PodDoc
	Ports []map[string]any `json:"ports,omitempty"`
}

// netInfo is a pod's network in `ps --json`.
type netInfo struct {
	Name, Interface string
	IP4, IP6        *struct {
		IP, Gateway string
	}
}

// address returns an address of the pod's network without its prefix length.
func (i netInfo) address(v6 bool) string {
	ip := i.IP4
	if v6 {
		ip = i.IP6
	}
	if ip == nil {
		return ""
	}
	address, _, _ := strings.Cut(ip.IP, "/")
	return address
}

// connect starts a pod on networks.
func (m *netMachine) connect(name string, doc any, networks ...string) *harness.Pod {
	m.T.Helper()
	args := []string{"run", "--json", "--detach", "--name", name}
	for _, n := range networks {
		args = append(args, "--net", n)
	}
	return m.Adopt(m.Must(append(args, m.Write(name+".json", doc))...))
}

// networksOf returns a pod's networks.
func (m *netMachine) networksOf(p *harness.Pod) []netInfo {
	m.T.Helper()
	for line := range strings.Lines(m.Must("ps", "--json")) {
		var info struct {
			UUID     string
			Networks []netInfo
		}
		if err := json.Unmarshal([]byte(line), &info); err != nil {
			m.T.Fatal(err)
		}
		if info.UUID == p.UUID {
			return info.Networks
		}
	}
	m.T.Fatalf("ps does not list pod %s", p.Name)
	return nil
}

// server is an app that sends each client on port 8080 a text and the client's address.
func server(name, text string) harness.AppDoc {
	return suite.Shell(name, serveScript("/tmp/www", "[::]", 8080, text))
}

// fetchFrom reads from a server, from inside a pod; "" if there is no answer.
func fetchFrom(p *harness.Pod, app, address string, port int) string {
	p.T.Helper()
	return bodyOf(p.Exec(app, "/bin/sh", "-c", getScript("", address, port, who)).Stdout)
}

// answers waits until a server answers with the text.
func answers(t *testing.T, want string, fetch func() string) {
	t.Helper()
	var got string
	if !poll.Until(15*time.Second, 100*time.Millisecond, func() bool { got = fetch(); return got == want }) {
		t.Fatalf("answer %q, want %q", got, want)
	}
}
