package tests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/tests/harness"
)

// namesOf returns the lines of a pod's /etc/hosts, without localhost, sorted.
func namesOf(p *harness.Pod, app string) []string {
	p.T.Helper()
	var lines []string
	for line := range strings.Lines(p.Exec(app, "/bin/cat", "/etc/hosts").Stdout) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "localhost") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// wantNames fails the test unless a pod's /etc/hosts has these lines alone.
func wantNames(t *testing.T, p *harness.Pod, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := namesOf(p, "s"); !slices.Equal(got, want) {
		t.Errorf("hosts of pod %s: %q, want %q", p.Name, got, want)
	}
}

// The pods of a network reach each other by their names for as long as each lives, and no others.
func TestPodsOfANetworkHaveNames(t *testing.T) {
	t.Parallel()
	bridge := func(name string, net int) string {
		return cniEntry(name, fmt.Sprintf(`"type": "bridge", "bridge": "br%s", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.%d.0.0/24"}`, name, net))
	}
	m := newNetMachine(t, "["+bridge("front", 97)+","+bridge("back", 98)+"]")
	sleeps := harness.PodOf(suite.Shell("s", "exec sleep 1000"), suite.Shell("other", "exec sleep 1000"))

	web := m.connect("web", sleeps, "front")
	wantNames(t, web, "10.97.0.2\tweb")
	api := m.connect("api", sleeps, "front", "back")
	db := m.Adopt(m.Must("run", "--json", "--detach", "--name", "my_db", "--hostname", "db.example", "--net", "back", m.Write("db.json", sleeps)))
	wantNames(t, web, "10.97.0.2\tweb", "10.97.0.3\tapi")
	wantNames(t, api, "10.97.0.3\tapi", "10.98.0.2\tapi", "10.97.0.2\tweb", "10.98.0.3\tmy_db")
	wantNames(t, db, "10.98.0.3\tdb.example my_db", "10.98.0.2\tapi")
	if got, want := namesOf(api, "other"), namesOf(api, "s"); !slices.Equal(got, want) {
		t.Errorf("hosts of the pod's other app: %q, want %q", got, want)
	}
	for _, c := range []struct {
		from *harness.Pod
		to   string
		code int
	}{{api, "my_db", 0}, {api, "web", 0}, {db, "api", 0}, {db, "db.example", 0}, {web, "my_db", 1}} {
		if r := c.from.Exec("s", "/bin/ping", "-c", "1", "-W", "5", c.to); r.Code != c.code {
			t.Errorf("ping %s in pod %s: exit status %d, want %d: %s%s", c.to, c.from.Name, r.Code, c.code, r.Stdout, r.Stderr)
		}
	}

	// A file of the app's own stays, and generate does not show the launcher's.
	own := m.Write("own", "192.0.2.1 my-own\n")
	given := m.Adopt(m.Must("run", "--json", "--detach", "--name", "given", "--net", "front", "--volume", own+":/etc/hosts:ro", m.Write("given.json", sleeps)))
	if got := given.Exec("s", "/bin/cat", "/etc/hosts").Stdout; !strings.Contains(got, "my-own") || strings.Contains(got, "web") {
		t.Errorf("hosts of a pod with a file: %q", got)
	}
	wantNames(t, web, "10.97.0.2\tweb", "10.97.0.3\tapi", "10.97.0.4\tgiven")
	if got := m.Must("generate", "api"); strings.Contains(got, "hosts") || strings.Contains(got, "volumes") {
		t.Errorf("the generated manifest: %s", got)
	}

	// A pod that ends, is removed, restarted or killed.
	m.Must("rm", "--force", "given")
	wantNames(t, web, "10.97.0.2\tweb", "10.97.0.3\tapi")
	m.Must("stop", "api")
	wantNames(t, web, "10.97.0.2\tweb")
	wantNames(t, db, "10.98.0.3\tdb.example my_db")
	api = m.Adopt(m.Must("restart", "--json", "api"))
	for _, n := range m.networksOf(api) {
		pod := map[string]*harness.Pod{"front": web, "back": db}[n.Name]
		if got := namesOf(pod, "s"); !slices.Contains(got, n.address(false)+"\tapi") {
			t.Errorf("hosts of pod %s: %q, want the restarted pod's address %s", pod.Name, got, n.address(false))
		}
	}
	if err := syscall.Kill(harness.ParentOf(t, api.Stager), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the monitor is gone", func() bool { return !m.runs("api") })
	m.Must("gc")
	wantNames(t, web, "10.97.0.2\tweb")
	wantNames(t, db, "10.98.0.3\tdb.example my_db")
}

// An app of a pod with its own users, with a read-only root, reads the names too.
func TestAPodOfANetworkWithItsOwnUsersHasNames(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+bridgeEntry("nftables")+"]", harness.StagerConfig(`{"userNamespace": {"hostID": 700000}}`))
	doc := harness.PodOf(suite.Shell("s", "exec sleep 1000"))
	doc.Apps[0].ReadOnly = true
	first := m.connect("first", doc, "bridge")
	m.connect("second", doc, "bridge")
	m.wantAllNames(first, 1)
}

// Pods that start and stop at once, and monitors that are killed meanwhile, leave in the hosts files the pods that live.
func TestManyPodsAtOnceHaveNames(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+bridgeEntry("nftables")+"]")
	sleeps := harness.PodOf(suite.Shell("s", "exec sleep 1000"))
	watch := m.connect("watch", sleeps, "bridge")
	start := func(i int) []string {
		return []string{"run", "--detach", "--name", fmt.Sprint("p", i), "--net", "bridge", m.Write(fmt.Sprintf("p%d.json", i), sleeps)}
	}
	const pods = 10
	for i, r := range m.together(pods, start) {
		if r.Code != 0 {
			t.Fatalf("%s: %s", start(i), r.Stderr)
		}
	}
	m.wantAllNames(watch, pods)
	for _, info := range m.PS() {
		if slices.Contains([]string{"p0", "p1", "p2"}, info.Name) {
			if err := syscall.Kill(harness.ParentOf(t, info.PID), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the monitor is gone", func() bool { return !m.runs(info.Name) })
		}
	}
	for i, r := range m.together(3, func(i int) []string { return []string{"stop", fmt.Sprint("p", i+3)} }) {
		if r.Code != 0 {
			t.Fatalf("stop p%d: %s", i+3, r.Stderr)
		}
	}
	m.wantAllNames(watch, pods-6)
}

// runs says whether a pod has a monitor.
func (m *netMachine) runs(name string) bool {
	return slices.ContainsFunc(m.PS(), func(p harness.PodInfo) bool { return p.Name == name && p.State == "running" })
}

// wantAllNames checks that a pod's /etc/hosts has the addresses of all live pods, as many beside it, and no others.
func (m *netMachine) wantAllNames(watch *harness.Pod, others int) {
	m.T.Helper()
	var want []string
	for line := range strings.Lines(m.Must("ps", "--json")) {
		var info struct {
			Name, State string
			Networks    []netInfo
		}
		if err := json.Unmarshal([]byte(line), &info); err != nil {
			m.T.Fatal(err)
		}
		if info.State != "running" {
			continue // killed, and still connected
		}
		for _, n := range info.Networks {
			want = append(want, n.address(true)+"\t"+info.Name, n.address(false)+"\t"+info.Name)
		}
	}
	if len(want) != 2*(others+1) {
		m.T.Fatalf("ps has %d addresses, want %d", len(want), 2*(others+1))
	}
	wantNames(m.T, watch, want...)
}
