package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// examples has the files that the package kurma-cri has as examples.
const examples = "../../tools/release/debian/kurma-cri/"

// docs/one-machine.md is executed word for word, but for systemctl: a kubelet without a cluster runs the pods of files.
// The machine loses its power before it removes the pod.
func TestOneMachine(t *testing.T) {
	c := &cluster{T: t, dir: t.TempDir()}
	c.serveImages()
	m := newMachine(c)
	c.nodes = []*node{m.node}
	m.execute(commands(t, "kubernetes.md", "Connect its pods"))
	removal := commands(t, "one-machine.md", "Remove a pod")
	before, after, _ := strings.Cut(commands(t, "one-machine.md", ""), removal)
	m.execute(before)
	m.logMemory()
	m.testStops()
	m.testSecret()

	m.end()
	m.boot()
	m.startUnit()
	m.shell(getPage)
	m.execute(removal + after)
	c.nothingIsLeft()
	c.await("no log is left", func() bool {
		logs, err := os.ReadDir(m.path("var/log/pods"))
		return err == nil && len(logs) == 0
	})
	m.check()
}

// check checks what the commands have printed, in this order.
func (m *machine) check() {
	m.c.Helper()
	rest := m.printed.String()
	for _, want := range []string{
		`\nok\+`,               // kubelet's health
		`\nhello\n`,            // the page by the published port
		`Ready +web-node-1 `,   // pods
		`Running +client `,     // containers
		`\n.* [0-9:]{8} .*\n`,  // the client's log
		`health\nindex.html\n`, // a command
		`\n[0-9a-f]+ +http `,   // statistics
		`Running +http +1 `,    // the server after its restart
		`\ngood morning\n`,     // the changed pod
	} {
		found := regexp.MustCompile(want).FindStringIndex(rest)
		if found == nil {
			m.c.Fatalf("the commands do not print %s in:\n%s", want, m.printed.String())
		}
		rest = rest[found[1]-1:]
	}
}

// logMemory logs what kubelet, the server and the containers' own processes of the server need.
func (m *machine) logMemory() {
	m.c.Helper()
	begin := m.printed.Len()
	m.shell(`set +x
		for name in '[k]ubelet --config' '[k]urma-cri --config' '^/[s]tager'; do
			echo "$name: $(pgrep -cf "$name")"
			for pid in $(pgrep -f "$name"); do cat /proc/$pid/smaps_rollup; done |
				awk '/^(Rss|Pss|Anonymous):/ { sum[$1] += $2 } END { for (k in sum) print k, sum[k], "kB" }'
		done`)
	m.c.Log(m.printed.String()[begin:])
}

// getPage waits for the pod's server.
const getPage = "curl --silent --fail --retry 60 --retry-delay 1 --retry-connrefused http://127.0.0.1:8080/\n"

// testStops checks that the pod runs on while neither kubelet nor the server runs, and that kubelet serves no commands.
func (m *machine) testStops() {
	m.c.Helper()
	m.shell("! curl --silent --insecure https://127.0.0.1:10250/healthz")
	m.kill("kubelet")
	m.kill("kurma-cri")
	m.shell("curl --silent --fail http://127.0.0.1:8080/")
	m.startServer()
	m.startUnit()
}

// testSecret changes the pod into one with a Secret: kubelet stops it, and says why by the document's words.
func (m *machine) testSecret() {
	m.c.Helper()
	m.shell(`cd /etc/kubernetes
		cp manifests/web.yaml good.yaml
		sed 's/emptyDir: {}/secret: {secretName: password}/' good.yaml >web.yaml
		mv web.yaml manifests/
		until [ -z "$(crictl pods --quiet --state ready)" ]; do sleep 1; done
		mv good.yaml manifests/web.yaml
		` + getPage)
	log, err := os.ReadFile(m.path("kubelet.log"))
	if err != nil || !bytes.Contains(log, []byte("static pods may not reference secrets")) {
		m.c.Errorf("kubelet does not say that it refuses the pod: %v", err)
	}
}

// machine is a node without a cluster. Its own /etc outlives it.
type machine struct {
	*node

	printed bytes.Buffer // by the commands
}

// newMachine makes a machine on which the packages are installed and kurma-cri runs.
func newMachine(c *cluster) *machine {
	c.Helper()
	m := &machine{node: c.makeNode(1)}
	m.writeServerConfig("/etc/cni/net.d")
	c.write(m.name+"/certs.d/docker.io/hosts.toml", fmt.Sprintf("[host.%q]\n", "http://"+registry))
	// The machine is a part of another one.
	m.write("kubelet.d/10-tests.conf", map[string]any{
		"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
		"failCgroupV1": false, "oomScoreAdj": 0, "evictionHard": map[string]any{"memory.available": "100Mi"},
		"volumePluginDir": m.path("volume-plugins"), "imageGCHighThresholdPercent": 100,
	})
	if out, err := exec.Command("cp", "-a", "/etc", m.path("etc")).CombinedOutput(); err != nil {
		c.Fatalf("copy /etc: %v: %s", err, out)
	}
	c.write(m.name+"/etc/hosts", "127.0.0.1 localhost\n127.0.1.1 "+m.name+"\n") // as Debian's installer does
	for _, name := range []string{"kubelet.yaml", "kubelet.service"} {
		text, err := os.ReadFile(examples + name)
		c.must(err)
		c.write(m.name+"/doc/kurma-cri/examples/"+name, string(text))
	}
	c.must(os.Mkdir(m.path("bin"), 0o755))
	c.must(os.Symlink(environment(c.T, "CRICTL"), m.path("bin/crictl")))
	m.boot()
	return m
}

// boot starts the machine with its server.
func (m *machine) boot() {
	m.c.Helper()
	m.startAgent()
	m.connect()
	m.shell(fmt.Sprintf("mount --bind %s /etc; mount --bind %s /usr/share/doc", m.path("etc"), m.path("doc")))
	m.startServer()
}

// shell runs a script on the machine, and keeps what it prints.
func (m *machine) shell(script string) {
	m.c.Helper()
	ctx, cancel := context.WithTimeout(m.c.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(m.agent.Process.Pid),
		"--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "sh", "-euxc", script)
	cmd.Env = append(os.Environ(), "PATH="+m.path("bin")+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &m.printed, &m.printed
	cmd.WaitDelay = time.Second // for what still has its output
	if err := cmd.Run(); err != nil {
		m.c.Fatalf("%v\n%s", err, m.printed.String())
	}
}

// execute runs commands. Systemctl is the test itself: it starts what kubelet's unit says.
func (m *machine) execute(commands string) {
	m.c.Helper()
	var script strings.Builder
	for line := range strings.Lines(commands) {
		action, isSystemctl := strings.CutPrefix(line, "systemctl ")
		if !isSystemctl {
			script.WriteString(line)
			continue
		}
		m.shell(script.String())
		script.Reset()
		switch strings.TrimSpace(action) {
		case "daemon-reload", "enable kubelet":
		case "restart kubelet":
			m.startUnit()
		default:
			m.c.Fatalf("the test does not know %q", line)
		}
	}
	m.shell(script.String())
}

// startUnit starts kubelet with the arguments of its installed unit.
func (m *machine) startUnit() {
	m.c.Helper()
	unit, err := os.ReadFile(m.path("etc/systemd/system/kubelet.service"))
	m.c.must(err)
	command := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/kubelet (.*)$`).FindSubmatch(unit)
	if command == nil {
		m.c.Fatalf("the unit executes no kubelet:\n%s", unit)
	}
	args := append([]string{environment(m.c.T, "KUBERNETES"), "kubelet"}, strings.Fields(string(command[1]))...)
	m.start("kubelet", append(args, "--config-dir", m.path("kubelet.d"))...)
}

// commands returns the blocks of the language "sh" in a document, or in one of its sections.
func commands(t *testing.T, name, section string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../docs", name))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if section != "" {
		_, text, _ = strings.Cut(text, "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if len(blocks) == 0 {
		t.Fatalf("%s %s has no commands", name, section)
	}
	var all strings.Builder
	for _, block := range blocks {
		all.WriteString(block[1])
	}
	return all.String()
}
