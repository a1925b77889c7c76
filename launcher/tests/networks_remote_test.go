package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// testDriver is a network driver, written with Docker's go-plugins-helpers, that runs on a machine.
type testDriver struct {
	t       *testing.T
	host    *netns
	name    string
	dir     string // has its files calls and faults
	file    string // by which it is found: its socket, or a specification
	address string // on which it listens: its socket, or a port of loopback
	args    []string
	lock    *os.File
	cmd     *exec.Cmd
}

// driverProgram builds the driver once.
var driverProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(suite.Store), "testdriver")
	cmd := exec.Command("go", "build", "-o", program, "./remote/testdriver")
	cmd.Dir = "../../netplugins"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build driver: %w: %s", err, out)
	}
	return program, nil
})

// drivers counts the names of uniqueDriver.
var drivers atomic.Int32

// uniqueDriver returns the name of a driver that no other test on this machine has.
func uniqueDriver() string { return fmt.Sprintf("kurma-test-%d-%d", os.Getpid(), drivers.Add(1)) }

// driver runs a driver on the machine. It ends when the machine's pods and plugins have.
func (m *netMachine) driver(name string, args ...string) *testDriver {
	m.T.Helper()
	d := newDriver(m.T, m.host, name, args...)
	m.after = append(m.after, d.close)
	return d
}

// newDriver runs a driver in a network namespace, until close.
func newDriver(t *testing.T, host *netns, name string, args ...string) *testDriver {
	t.Helper()
	d := makeDriver(t, host, filepath.Join(driverSockets, name, name+".sock"), args...)
	d.start()
	return d
}

// makeDriver makes a driver that start starts, in a network namespace, and close ends. file is its socket or specification
// where Docker looks for it: no two suites may have a driver of one name at a time.
func makeDriver(t *testing.T, host *netns, file string, args ...string) *testDriver {
	t.Helper()
	name := filepath.Base(filepath.Dir(file))
	lock, err := lockName(name)
	if err != nil {
		t.Fatal(err)
	}
	d := &testDriver{t: t, host: host, name: name, dir: t.TempDir(), file: file, address: file, args: args, lock: lock}
	for err = fs.ErrNotExist; errors.Is(err, fs.ErrNotExist); { // another suite may remove the parent meanwhile
		err = os.MkdirAll(filepath.Dir(d.file), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lockName takes the lock of a driver's name on this machine.
func lockName(name string) (*os.File, error) {
	for {
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), "test-network-driver-"+name), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
		var here, there unix.Stat_t
		if unix.Fstat(int(lock.Fd()), &here) == nil && unix.Stat(lock.Name(), &there) == nil && here.Ino == there.Ino {
			return lock, nil
		}
		lock.Close() // whoever had the lock has removed the file
	}
}

// driverSockets is where Docker looks for the sockets of drivers.
const driverSockets = "/run/docker/plugins"

// close ends the driver, and removes its file and what it was in, unless there are other drivers.
func (d *testDriver) close() {
	d.stop()
	own := filepath.Dir(d.file)
	_ = os.RemoveAll(own)
	_, _ = os.Remove(filepath.Dir(own)), os.Remove(filepath.Dir(filepath.Dir(own)))
	_ = errors.Join(os.Remove(d.lock.Name()), d.lock.Close())
}

// start starts the driver's process, which knows nothing of what an earlier one has made.
func (d *testDriver) start() {
	d.t.Helper()
	program, err := driverProgram()
	if err != nil {
		d.t.Fatal(err)
	}
	for _, stale := range []string{d.address, filepath.Join(d.dir, "inner.sock")} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.t.Fatal(err)
		}
	}
	d.cmd = d.host.command(slices.Concat([]string{program}, d.args, []string{d.address, d.dir})...)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	if _, port, err := net.SplitHostPort(d.address); err == nil {
		number, _ := strconv.Atoi(port)
		d.host.awaitPort(number)
		return
	}
	harness.Eventually(d.t, "the driver listens", func() bool { _, err := os.Stat(d.address); return err == nil })
}

// stop kills the driver. Its socket stays, and refuses connections.
func (d *testDriver) stop() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// driverCall is a request that the driver got.
type driverCall struct {
	Method string
	Body   map[string]any
}

// calls returns the requests since the last time.
func (d *testDriver) calls() (all []driverCall) {
	d.t.Helper()
	file := filepath.Join(d.dir, "calls")
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var c driverCall
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			d.t.Fatal(err)
		}
		all = append(all, c)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
	return all
}

// methods returns the methods of the requests since the last time.
func (d *testDriver) methods() string {
	d.t.Helper()
	var all []string
	for _, c := range d.calls() {
		all = append(all, c.Method)
	}
	return strings.Join(all, " ")
}

// fail has the driver answer a method wrongly; "" ends that.
func (d *testDriver) fail(method, fault string) {
	d.t.Helper()
	text := "{}"
	if method != "" {
		text = fmt.Sprintf("{%q: %s}", method, fault)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "faults"), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// remoteEntry is a network of a driver, with further keys.
func remoteEntry(driver, more string) string {
	return fmt.Sprintf(`{"name": "remote", "aci": "kurma.io/stager/remote-netplugin", "containerInterface": "eth{{num}}", "driver": %q, %s}`, driver, more)
}

// What a driver hears.
const (
	callsOfNetwork    = "Activate GetCapabilities CreateNetwork"
	callsOfConnect    = "CreateEndpoint Join ProgramExternalConnectivity EndpointOperInfo"
	callsOfDisconnect = "RevokeExternalConnectivity Leave DeleteEndpoint"
)

const dualStack = `"ipam": [{"subnet": "10.95.0.0/24", "gateway": "10.95.0.1/24"}, {"subnet": "fd00:95::/64", "gateway": "fd00:95::1/64"}],
	"capabilities": {"portMappings": true, "ips": true, "mac": true}`

func TestPodsOfARemoteDriverTalk(t *testing.T) {
	t.Parallel()
	name := uniqueDriver()
	m := newNetMachine(t, "["+remoteEntry(name, dualStack)+"]")
	d := m.driver(name)
	a := m.connect("a", harness.PodOf(server("s", "a for")), "remote")
	b := m.connect("b", netPodDoc{harness.PodOf(server("s", "b for")), []map[string]any{published("web", "tcp", 18081, 8080, 1)}}, "remote:ips=10.95.0.77,mac=02:00:00:00:00:77,label=tier=front")
	nets := m.networksOf(b)
	if len(nets) != 1 || nets[0].Interface != "eth0" || nets[0].address(false) != "10.95.0.77" || nets[0].IP4.Gateway != "10.95.0.1" || nets[0].IP6.Gateway != "fd00:95::1" {
		t.Fatalf("networks of b: %+v", nets)
	}
	netA := m.networksOf(a)[0]
	answers(t, "b for "+netA.address(false), func() string { return fetchFrom(a, "s", "10.95.0.77", 8080) })
	answers(t, "a for "+nets[0].address(true), func() string { return fetchFrom(b, "s", netA.address(true), 8080) })
	answers(t, "b for 10.95.0.1", func() string { return m.host.fetch("10.95.0.77", 8080) })
	m.host.serve("[::]", 9000, "host for")
	answers(t, "host for 10.95.0.77", func() string { return fetchFrom(b, "s", "10.95.0.1", 9000) })
	if r := a.Exec("s", "/bin/ping", "-c", "1", "-W", "10", "10.95.0.77"); r.Code != 0 {
		t.Errorf("ping: %+v", r)
	}
	if got := strings.TrimSpace(b.Exec("s", "/bin/cat", "/sys/class/net/eth0/address").Stdout); got != "02:00:00:00:00:77" {
		t.Errorf("address of the link %s", got)
	}
	routes := b.Exec("s", "/bin/ip", "route").Stdout
	for _, want := range []string{"default via 10.95.0.1 dev eth0", "198.51.100.0/25 dev eth0", "198.51.100.128/25 via 10.95.0.1 dev eth0", "10.95.0.0/24 dev eth0"} {
		if !strings.Contains(routes, want) {
			t.Errorf("no route %s in\n%s", want, routes)
		}
	}
	if routes := b.Exec("s", "/bin/ip", "-6", "route").Stdout; !strings.Contains(routes, "default via fd00:95::1 dev eth0") {
		t.Errorf("routes of IPv6\n%s", routes)
	}
	if r := m.Launcher("network", "validate", "remote"); r.Code != 0 {
		t.Errorf("network validate: %+v", r)
	}
	m.Must("stop", "a")
	m.Must("stop", "b")
	calls := d.calls()
	var methods []string
	for _, c := range calls {
		methods = append(methods, c.Method)
		if id, is := c.Body["EndpointID"].(string); is && len(id) != 64 {
			t.Errorf("%s: EndpointID %q", c.Method, id)
		}
	}
	want := strings.Join([]string{callsOfNetwork, callsOfConnect, callsOfConnect, "Activate GetCapabilities EndpointOperInfo EndpointOperInfo", callsOfDisconnect, callsOfDisconnect}, " ")
	if got := strings.Join(methods, " "); got != want {
		t.Fatalf("calls\n%s, want\n%s", got, want)
	}
	options, _ := json.Marshal(calls[7].Body["Options"])
	if want := `{"com.docker.network.endpoint.exposedports":[{"Port":8080,"Proto":6}],"com.docker.network.generic":{"tier":"front"},` +
		`"com.docker.network.portmap":[{"HostIP":"","HostPort":18081,"HostPortEnd":18081,"IP":"","Port":8080,"Proto":6}],"tier":"front"}`; string(options) != want {
		t.Errorf("options %s, want %s", options, want)
	}

	// A network that no pod uses is kept while it is in the configuration.
	m.Must("gc")
	if got := d.methods(); got != "" {
		t.Errorf("calls of gc: %s", got)
	}
	m.connect("a2", harness.PodOf(server("s", "a for")), "remote")
	m.Must("stop", "a2")
	if got, want := d.methods(), strings.Join([]string{"Activate GetCapabilities", callsOfConnect, callsOfDisconnect}, " "); got != want {
		t.Errorf("calls of a pod after gc\n%s, want\n%s", got, want)
	}

	// A network that is taken out of the configuration is deleted.
	m.reconfigure("[]")
	m.Must("gc")
	if got := d.methods(); got != "DeleteNetwork" {
		t.Errorf("calls of gc without the network: %s", got)
	}
	m.Must("gc")
	if got := d.methods(); got != "" {
		t.Errorf("calls of the next gc: %s", got)
	}
	if links := m.host.run("ip", "-o", "link"); strings.Contains(links, ": td") {
		t.Errorf("left: links\n%s", links)
	}
}

// A driver that gives the addresses itself, beside a network that has the default route.
func TestRemoteDriverGivesAddresses(t *testing.T) {
	t.Parallel()
	name := uniqueDriver()
	m := newNetMachine(t, "["+remoteEntry(name, `"options": {"mode": "x"}`)+`,
		{"name": "sample", "aci": "kurma.io/stager/sample-netplugin", "containerInterface": "eth{{num}}", "subnet": "10.99.0.0/24"},
		{"name": "unnamed", "aci": "kurma.io/stager/remote-netplugin", "driver": "`+name+`"}]`)
	m.driver(name, "--addresses", "10.96.0.0/24")
	p := m.connect("p", harness.PodOf(server("s", "p for")), "sample", "remote", "unnamed")
	nets := m.networksOf(p)
	if len(nets) != 3 || nets[1].Interface != "eth1" || nets[1].address(false) != "10.96.0.1" || nets[2].address(false) != "10.96.0.2" {
		t.Fatalf("networks %+v", nets)
	}
	links := p.Exec("s", "/bin/ip", "-o", "addr").Stdout
	for _, want := range []string{"eth1    inet 10.96.0.1/24", "net0    inet 10.96.0.2/24"} {
		if !strings.Contains(links, want) {
			t.Errorf("no %q in\n%s", want, links)
		}
	}
	if routes := p.Exec("s", "/bin/ip", "route").Stdout; strings.Count(routes, "default") != 1 || !strings.Contains(routes, "default via 10.99.0.1") {
		t.Errorf("routes\n%s", routes)
	}
}

// Whatever a driver does wrong, the launch fails with its words, and nothing is left of the pod: each call
// that the driver has carried out is undone.
func TestFailuresOfARemoteDriverRollBack(t *testing.T) {
	t.Parallel()
	name := uniqueDriver()
	m := newNetMachine(t, "["+remoteEntry(name, `"ipam": [{"subnet": "10.95.0.0/24", "gateway": "10.95.0.1/24"}]`)+"]")
	d := m.driver(name)
	m.connect("good", harness.PodOf(suite.Shell("s", "sleep 1000")), "remote")
	if got, want := d.methods(), callsOfNetwork+" "+callsOfConnect; got != want {
		t.Fatalf("calls %s, want %s", got, want)
	}
	before := m.linkNames()
	const joinAnswer = `{\"InterfaceName\": {\"SrcName\": \"nosuchlink\", \"DstPrefix\": \"eth\"}}`
	for _, tt := range []struct{ name, method, fault, calls, words string }{
		{"Err", "CreateEndpoint", `{"Status": 200, "Body": "{\"Err\": \"out of room\"}"}`, "CreateEndpoint", "CreateEndpoint: out of room"},
		{"500", "CreateEndpoint", `{"Status": 500, "Body": "{\"Err\": \"out of order\"}"}`, "CreateEndpoint", "out of order (HTTP status 500)"},
		{"bad CIDR", "CreateEndpoint", `{"After": true, "Status": 200, "Body": "{\"Interface\": {\"MacAddress\": \"02:00:00:00:00:01\", \"AddressIPv6\": \"fd00:95::9\"}}"}`, "CreateEndpoint DeleteEndpoint", `AddressIPv6 "fd00:95::9"`},
		{"a field that was given", "CreateEndpoint", `{"After": true, "Status": 200, "Body": "{\"Interface\": {\"Address\": \"10.95.0.9/24\"}}"}`, "CreateEndpoint DeleteEndpoint", "must not answer 10.95.0.9/24"},
		{"Err of Join", "Join", `{"Status": 200, "Body": "{\"Err\": \"not now\"}"}`, "CreateEndpoint Join DeleteEndpoint", "Join: not now"},
		{"garbage of Join", "Join", `{"After": true, "Status": 200, "Body": "hello"}`, "CreateEndpoint Join Leave DeleteEndpoint", "Join: read answer"},
		{"link that is not there", "Join", `{"After": true, "Status": 200, "Body": "` + joinAnswer + `"}`, "CreateEndpoint Join Leave DeleteEndpoint", "nosuchlink"},
		{"500 of ProgramExternalConnectivity", "ProgramExternalConnectivity", `{"Status": 500, "Body": "port taken"}`, "CreateEndpoint Join ProgramExternalConnectivity Leave DeleteEndpoint", "port taken"},
		{"time-out", "Join", `{"Hang": true}`, "CreateEndpoint Join Leave DeleteEndpoint", "not done within 30s"},
	} {
		d.fail(tt.method, tt.fault)
		r := m.Launcher("run", "--detach", "--name", "bad", "--net", "remote", m.Write("bad.json", harness.PodOf(suite.Shell("s", "sleep 1000"))))
		if r.Code == 0 || !strings.Contains(r.Stderr, `connect to network "remote"`) || !strings.Contains(r.Stderr, tt.words) {
			t.Errorf("%s: %+v, want %s", tt.name, r, tt.words)
		}
		if got := d.methods(); got != tt.calls {
			t.Errorf("%s: calls %s, want %s", tt.name, got, tt.calls)
		}
		if links := m.linkNames(); links != before {
			t.Errorf("%s: links\n%s, want\n%s", tt.name, links, before)
		}
		m.checkEndpoints(1)
	}
	d.fail("", "")
	d.stop()
	r := m.Launcher("run", "--detach", "--name", "bad", "--net", "remote", filepath.Join(m.Dir, "bad.json"))
	if r.Code == 0 || !strings.Contains(r.Stderr, "connection refused") {
		t.Errorf("a driver that does not listen: %+v", r)
	}
	m.checkEndpoints(1)
	d.start() // it has forgotten the pod: that is an error once, and does not keep the pod from ending
	if r := m.Launcher("stop", "good"); r.Code != 1 || !strings.Contains(r.Stderr, `pod "good" has ended`) || !strings.Contains(r.Stderr, "DeleteEndpoint: no such endpoint") {
		t.Errorf("stop of a pod that the driver has forgotten: %+v", r)
	}
	m.Must("gc")
	m.checkEndpoints(0)
	log, err := os.ReadFile(filepath.Join(m.networks, "remote", "log"))
	if err != nil || !strings.Contains(string(log), "DeleteEndpoint: no such endpoint") {
		t.Errorf("log of the network: %v\n%s", err, log)
	}
	for link := range strings.FieldsSeq(m.linkNames()) { // the driver has forgotten them
		if name, _, _ := strings.Cut(strings.TrimSuffix(link, ":"), "@"); strings.HasPrefix(name, "td") && !strings.HasPrefix(name, "tdh") {
			m.host.run("ip", "link", "del", name)
		}
	}

	// The driver gets the network again when it is taken out of the configuration and put back.
	entries, _ := m.Config["container_networks"].(json.RawMessage)
	m.reconfigure("[]")
	if r := m.Launcher("gc"); r.Code == 0 || !strings.Contains(r.Stderr, "DeleteNetwork: no such network") {
		t.Errorf("gc of a network that the driver has forgotten: %+v", r)
	}
	m.Must("gc")
	m.reconfigure(string(entries))
	m.connect("good", harness.PodOf(suite.Shell("s", "sleep 1000")), "remote")
}

// Pods that start at once have addresses of their own, and when they stop at once nothing is left of them.
func TestManyPodsOfARemoteDriverAreConnectedAtOnce(t *testing.T) {
	t.Parallel()
	pods := times(t, "NETWORK_PODS", 24)
	name := uniqueDriver()
	m := newNetMachine(t, "["+remoteEntry(name, dualStack)+"]")
	d := m.driver(name)
	doc := m.Write("p.json", harness.PodOf(suite.Shell("s", "sleep 1000")))
	for range times(t, "NETWORK_ROUNDS", 1) {
		m.startAndStop(pods, "remote", func(int) string { return doc })
		m.checkEndpoints(0)
		m.checkNetworks()
		counts := make(map[string]int)
		for _, c := range d.calls() {
			counts[c.Method]++
		}
		for _, method := range strings.Fields(callsOfConnect + " " + callsOfDisconnect) {
			if counts[method] != pods {
				t.Errorf("%d calls of %s", counts[method], method)
			}
		}
		if counts["CreateNetwork"] > 1 {
			t.Errorf("%d calls of CreateNetwork", counts["CreateNetwork"])
		}
	}
}

// A launcher that is killed at any moment of a pod's start or stop leaves what gc undoes at the driver.
func TestADriverKeepsNothingOfALauncherThatWasKilled(t *testing.T) {
	t.Parallel()
	name := uniqueDriver()
	m := newNetMachine(t, "["+remoteEntry(name, dualStack)+"]")
	m.driver(name)
	m.connect("first", harness.PodOf(suite.Shell("s", "sleep 1000")), "remote")
	before := m.linkNames()
	m.killRuns(10, "remote", m.Write("p.json", harness.PodOf(suite.Shell("s", "echo up; exec sleep 1000"))), func() {
		m.checkEndpoints(1)
		if links := m.linkNames(); links != before {
			t.Errorf("links\n%s, want\n%s", links, before)
		}
	})
}

// reconfigure changes the entries of container_networks.
func (m *netMachine) reconfigure(entries string) {
	m.T.Helper()
	m.Config["container_networks"] = json.RawMessage(entries)
	m.Write("config.json", m.Config)
}

// linkNames returns the names of the machine's links.
func (m *netMachine) linkNames() string {
	var names []string
	for line := range strings.Lines(m.host.run("ip", "-o", "link")) {
		names = append(names, strings.Fields(line)[1])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// checkEndpoints checks how many pods the plugin has on record.
func (m *netMachine) checkEndpoints(want int) {
	m.T.Helper()
	files, _ := filepath.Glob(filepath.Join(m.networks, "remote/state/endpoints/*"))
	if len(files) != want {
		m.T.Errorf("endpoints on record: %v, want %d", files, want)
	}
}
