package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// `network validate` has a line for each network: what is wrong with the configuration, in the plugin's words, or that it is
// good.
func TestNetworkValidateSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const ptp = `"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.89.0.0/24"}`
	cni := func(name, more string) string {
		return fmt.Sprintf(`{"name": %q, "aci": "kurma.io/stager/cni-netplugin", %s}`, name, more)
	}
	const eth = `"containerInterface": "eth0", `
	all := []struct{ name, entry, words string }{
		{"good", cni("good", eth+`"cniVersion": "1.1.0", `+ptp), "good"},
		{"plugin", cni("plugin", eth+`"cniVersion": "1.0.0", "type": "nosuch"`), `failed to find plugin "nosuch" in path`},
		{"ipam", cni("ipam", eth+`"cniVersion": "1.0.0", "type": "ptp", "ipam": {"type": "nosuch"}`), `failed to find plugin "nosuch" in path`},
		{"version", cni("version", eth+`"cniVersion": "9.0.0", `+ptp), "9.0.0"},
		{"both", cni("both", eth+`"cniVersion": "1.0.0", "plugins": [{"type": "ptp"}], `+ptp), "type and plugins are both given"},
		{"interface", cni("interface", `"cniVersion": "1.0.0", `+ptp), "containerInterface: missing"},
		{"image", `{"name": "image", "aci": "example.com/nosuch"}`, `"example.com/nosuch"`},
		{"driver", `{"name": "driver", "aci": "kurma.io/stager/remote-netplugin"}`, "driver: missing"},
		{"key", `{"name": "key", "aci": "kurma.io/stager/remote-netplugin", "driver": "d", "subnet": "x"}`, `unknown field "subnet"`},
		{"subnet", `{"name": "subnet", "aci": "kurma.io/stager/sample-netplugin", "subnet": "10.0.0.0/31"}`, "subnet: want an IPv4 subnet of at most 30 bits"},
	}
	var entries []string
	for _, tt := range all {
		entries = append(entries, tt.entry)
	}
	m := newNetMachine(t, "["+strings.Join(entries, ",")+"]")
	r := m.Launcher("network", "validate")
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if r.Code != 1 || len(lines) != len(all) {
		t.Fatalf("network validate: %+v, want %d lines", r, len(all))
	}
	for i, tt := range all {
		if !strings.HasPrefix(lines[i], tt.name+": ") || !strings.Contains(lines[i], tt.words) {
			t.Errorf("%s: %q, want %q", tt.name, lines[i], tt.words)
		}
	}
	if r := m.Launcher("network", "validate", "good"); r.Code != 0 || r.Stdout != "good: good\n" {
		t.Errorf("network validate good: %+v", r)
	}
}

// A plugin's image may come from a server, with its signature beside it. One without a signature is refused.
func TestAPluginThatAServerHasMustBeSigned(t *testing.T) {
	t.Parallel()
	aci := scriptPlugin(t, unwilling)
	dir := t.TempDir()
	harness.RunAll(t, []string{"cp", aci, aci + ".asc", dir}, []string{"cp", aci, filepath.Join(dir, "unsigned.aci")})
	m := newNetMachine(t, `[
		{"name": "signed", "aci": "http://127.0.0.1:8000/plugin.aci", "containerInterface": "eth0"},
		{"name": "unsigned", "aci": "http://127.0.0.1:8000/unsigned.aci", "containerInterface": "eth0"}]`, ownPlugins, func(b *harness.Machine) {
		b.Keys = append(b.Keys, aci+".pub")
		b.Config["cacheDirectory"] = filepath.Join(b.Dir, "cache")
	})
	m.host.background(8000, "/bin/busybox", "httpd", "-f", "-h", dir, "-p", "127.0.0.1:8000")
	doc := harness.PodOf(suite.Shell("s", "sleep 1000"))
	r := m.Launcher("run", "--detach", "--net", "unsigned", m.Write("pod.json", doc))
	if r.Code != 1 || !strings.Contains(r.Stderr, `network "unsigned"`) || !strings.Contains(r.Stderr, "not signed") {
		t.Errorf("a plugin without a signature: %+v", r)
	}
	p := m.connect("p", doc, "signed")
	m.LayersAreNow()
	if got := m.networksOf(p)[0].address(false); got != "10.0.0.9" {
		t.Errorf("address %s", got)
	}

	// The plugin runs on when its key is not trusted any more, but the network is not good.
	keys := m.Config["trustedKeys"]
	for _, tt := range []struct {
		keys  any
		code  int
		words string
	}{{[]string{suite.StagerACI + ".pub"}, 1, "signed by an unknown key"}, {keys, 0, "signed: good\n"}} {
		m.Config["trustedKeys"] = tt.keys
		m.Write("config.json", m.Config)
		if r := m.Launcher("network", "validate", "signed"); r.Code != tt.code || !strings.Contains(r.Stdout, tt.words) {
			t.Errorf("network validate with keys %q: %+v, want %q", tt.keys, r, tt.words)
		}
	}
}

// A plugin's image may have nothing but a manifest and the image that it depends on, if both are signed by keys that are trusted.
func TestAPluginMayDependOnSignedImages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	aci, manifest, root := filepath.Join(dir, "dependent.aci"), filepath.Join(dir, "manifest.json"), filepath.Join(dir, "root")
	text := `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/dependent", "dependencies": [{"imageName": "kurma.io/stager/lo-netplugin"}],
		"app": {"exec": ["/opt/network/setup", "stay"], "user": "0", "group": "0", "isolators": [{"name": "os/linux/privileged", "value": true}]}}`
	if err := errors.Join(os.Mkdir(root, 0o755), os.WriteFile(manifest, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	harness.RunAll(t, []string{filepath.Join(filepath.Dir(suite.Launcher), "aci"), "build", "--manifest", manifest, "--root", root, "--sign", "-o", aci})
	m := newNetMachine(t, fmt.Sprintf(`[{"name": "dependent", "aci": %q}]`, "file://"+aci), ownPlugins, func(b *harness.Machine) {
		b.Keys = append(b.Keys, aci+".pub")
	})
	p := m.connect("p", harness.PodOf(suite.Shell("s", "sleep 1000")), "dependent")
	m.LayersAreNow()
	if got := m.networksOf(p)[0].address(false); got != "127.0.0.1" {
		t.Errorf("address %s", got)
	}
	m.Config["trustedKeys"] = []string{aci + ".pub"}
	m.Write("config.json", m.Config)
	r := m.Launcher("network", "validate", "dependent")
	if r.Code != 1 || !strings.Contains(r.Stdout, "dependency kurma.io/stager/lo-netplugin") || !strings.Contains(r.Stdout, "signed by an unknown key") {
		t.Errorf("a dependency whose key is not trusted: %+v", r)
	}
}

// The networks' folder may be relative to the working directory, as the configuration is.
func TestTheFolderOfNetworksMayBeRelative(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, `[{"name": "lo", "aci": "kurma.io/stager/lo-netplugin"}]`)
	folder, err := os.Getwd()
	if err == nil {
		folder, err = filepath.Rel(folder, m.networks)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Config["networksDirectory"] = folder
	m.Write("config.json", m.Config)
	if r := m.Launcher("network", "validate"); r.Code != 0 || r.Stdout != "lo: good\n" {
		t.Errorf("network validate: %+v", r)
	}
}
