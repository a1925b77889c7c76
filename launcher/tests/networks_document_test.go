package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// docs/networks.md is true: its configurations and its pod are used as they are printed, and its commands
// are executed in their order.
func TestNetworkDocumentIsTrue(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/networks.md")
	if err != nil {
		t.Fatal(err)
	}
	var entries, pods []string
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(document), -1) {
		var keys map[string]any
		if err := json.Unmarshal([]byte(block[1]), &keys); err != nil {
			t.Fatalf("%v:\n%s", err, block[1])
		}
		if keys["acKind"] != nil {
			pods = append(pods, block[1])
		} else {
			entries = append(entries, block[1])
		}
	}
	packaged := packagedNetwork(t)
	if !slices.ContainsFunc(entries, func(entry string) bool { return withBuiltPlugin(entry) == packaged }) {
		t.Error("the document does not have the network of the package kurma-netplugins")
	}
	if len(entries) < 9 || len(pods) != 1 {
		t.Fatalf("%d networks and %d pods", len(entries), len(pods))
	}
	m := newNetMachine(t, withBuiltPlugin("["+strings.Join(entries, ",")+"]"))
	world := m.worldBy("eth0")
	world.leaseAddresses()
	m.driver("example")
	m.Write("web.json", pods[0])
	names := make(map[string]bool)
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(document), -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			if words[0] != "launcher" {
				t.Errorf("a command of another program: %s", line)
				continue
			}
			cmd := m.Command(words[1:]...)
			cmd.Dir = m.Dir
			if r := harness.Finish(t, cmd); r.Code != 0 {
				t.Errorf("%s%s%s", line, r.Stdout, r.Stderr)
			}
		}
	}
	for _, info := range m.PS() {
		names[info.Name] = true
		p := &harness.Pod{Machine: m.Machine, UUID: info.UUID}
		for _, n := range m.networksOf(p) {
			if n.IP4 == nil {
				t.Errorf("pod %s has no address in network %s", info.Name, n.Name)
			}
		}
	}
	for _, name := range []string{"both", "fixed", "alone", "web", "db", "tuned", "driven", "sampled", "published", "first"} {
		if !names[name] {
			t.Errorf("no pod %s", name)
		}
	}
	answers(t, "web", func() string {
		return bodyOf(world.get("203.0.113.2", 8080, "/"))
	})
	answers(t, "web", func() string {
		return bodyOf(m.host.get("10.90.0.9", 80, "/"))
	})
}

// webImage makes the image example.com/web of the document: a server on port 80.
func webImage(dir string) (aci string, err error) {
	root := filepath.Join(dir, "web")
	if err := os.MkdirAll(filepath.Join(root, "www"), 0o755); err != nil {
		return "", err
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return "", err
	}
	manifest, aci := filepath.Join(dir, "web.json"), filepath.Join(dir, "web.aci")
	for path, text := range map[string]string{
		filepath.Join(root, "busybox"):        string(busybox),
		filepath.Join(root, "www/index.html"): "web",
		manifest: `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/web",
			"labels": [{"name": "os", "value": "linux"}, {"name": "arch", "value": "amd64"}],
			"app": {"exec": ["/busybox", "httpd", "-f", "-h", "/www", "-p", "80"], "user": "0", "group": "0",
				"ports": [{"name": "http", "protocol": "tcp", "port": 80}]}}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return aci, runTool("aci", "--manifest", manifest, "--root", root, "-o", aci)
}
