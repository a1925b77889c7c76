package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/netplugins/plugin"
)

// writeProgram writes a shell script.
func writeProgram(t *testing.T, path, script string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

// fakeTables makes a folder with programs iptables and nft, which work or not, the only one in PATH. It returns the
// file to which iptables adds a line in each execution.
func fakeTables(t *testing.T, iptables, nft bool) string {
	t.Helper()
	dir := t.TempDir()
	end := map[bool]string{true: "exit 0\n", false: "exit 3\n"}
	calls := filepath.Join(dir, "calls")
	writeProgram(t, filepath.Join(dir, "iptables"), "echo \"$@\" >>"+calls+"\nif [ \"$1\" = --version ]; then echo 'iptables v1.8.9 (nf_tables)'; exit; fi\n"+end[iptables])
	writeProgram(t, filepath.Join(dir, "nft"), "if [ \"$1\" = --version ]; then echo 'nftables v1.0.6 (Lester Gooch #5)'; exit; fi\n"+end[nft])
	t.Setenv("PATH", dir)
	return calls
}

// fakePlugins makes a folder with CNI plugins that write their configuration to the file TYPE-COMMAND beside them.
func fakePlugins(t *testing.T, kinds ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, kind := range kinds {
		writeProgram(t, filepath.Join(dir, kind), `read -r config
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'; exit ;;
ADD) echo '{"cniVersion": "1.0.0", "ips": [{"address": "127.0.0.1/8"}]}' ;;
esac
printf %s "$config" >"$0-$CNI_COMMAND"
`)
	}
	return dir
}

// newCNI returns a plugin with folders of its own, and moves the test into a network namespace of its own.
func newCNI(t *testing.T, plugins string) *cni {
	t.Helper()
	newNetwork(t)
	dir := t.TempDir()
	return &cni{path: []string{plugins}, cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data"), backend: filepath.Join(dir, "backend")}
}

// The remembered backend is in the configurations of the plugins that would choose one, and in no other. Without it
// all configurations are as they were.
func TestBackendIsForPluginsThatChoose(t *testing.T) {
	for _, tt := range []struct{ name, file, plugin, key, want string }{
		{"bridge", "nftables", `"type": "bridge", "ipMasq": true`, "ipMasqBackend", `"nftables"`},
		{"ptp", "iptables", `"type": "ptp", "ipMasq": true`, "ipMasqBackend", `"iptables"`},
		{"portmap", "nftables", `"type": "portmap"`, "backend", `"nftables"`},
		{"null is no choice", "nftables", `"type": "portmap", "backend": null`, "backend", `"nftables"`},
		{"bridge that does not masquerade", "nftables", `"type": "bridge", "ipMasq": false`, "", ""},
		{"bridge without ipMasq", "nftables", `"type": "bridge"`, "", ""},
		{"bridge with its own", "nftables", `"type": "bridge", "ipMasq": true, "ipMasqBackend": "iptables"`, "", ""},
		{"ptp with its own", "iptables", `"type": "ptp", "ipMasq": true, "ipMasqBackend": "nftables"`, "", ""},
		{"portmap with its own", "nftables", `"type": "portmap", "backend": "iptables"`, "", ""},
		{"a wrong choice is the plugin's to refuse", "nftables", `"type": "bridge", "ipMasq": true, "ipMasqBackend": 1`, "", ""},
		{"firewall", "nftables", `"type": "firewall"`, "", ""},
		{"noop", "nftables", `"type": "noop",  "ipMasq": true`, "", ""},
		{"bridge before setup", "", `"type": "bridge", "ipMasq": true`, "", ""},
		{"portmap before setup", "", `"type": "portmap"`, "", ""},
		{"garbage", "nftables\x00", `"type": "portmap"`, "", ""},
		{"another word", "ebtables", `"type": "bridge", "ipMasq": true`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCNI(t, "")
			if tt.file != "" {
				if err := os.WriteFile(c.backend, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, config := range []string{
				`{"name": "n", "cniVersion": "1.0.0", ` + tt.plugin + `}`,
				`{"name": "n", "cniVersion": "1.0.0", "plugins": [{` + tt.plugin + `}]}`,
			} {
				plain, err := parse([]byte(config))
				if err != nil {
					t.Fatal(err)
				}
				n, err := c.podNetwork([]byte(config))
				if err != nil {
					t.Fatal(err)
				}
				got, before := n.list.Plugins[0].Bytes, plain.list.Plugins[0].Bytes
				if tt.key == "" {
					if !bytes.Equal(got, before) {
						t.Errorf("%s, want %s", got, before)
					}
					continue
				}
				var keys, want map[string]json.RawMessage
				if err := json.Unmarshal(before, &want); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(got, &keys); err != nil {
					t.Fatal(err)
				}
				want[tt.key] = json.RawMessage(tt.want)
				if len(keys) != len(want) || string(keys[tt.key]) != tt.want {
					t.Errorf("%s, want %s with %q: %s", got, before, tt.key, tt.want)
				}
			}
		})
	}
}

// setup chooses as the CNI plugins do, also when it had chosen otherwise. It leaves no file where neither works, and beside
// its file no other.
func TestSetupChoosesBackend(t *testing.T) {
	for _, tt := range []struct {
		name          string
		iptables, nft bool
		plugin, want  string
	}{
		{"both work", true, true, `"type": "bridge", "ipMasq": true`, "iptables"},
		{"iptables works", true, false, `"type": "bridge", "ipMasq": true`, "iptables"},
		{"nft works", false, true, `"type": "bridge", "ipMasq": true`, "nftables"},
		{"for portmap", false, true, `"type": "portmap"`, "nftables"},
		{"neither works", false, false, `"type": "bridge", "ipMasq": true`, ""},
		{"nothing to choose", true, true, `"type": "bridge"`, ""},
	} {
		for _, earlier := range []string{"", "iptables", "nftables"} {
			t.Run(tt.name+" "+earlier, func(t *testing.T) {
				c := newCNI(t, fakePlugins(t, "bridge", "portmap"))
				fakeTables(t, tt.iptables, tt.nft)
				want := tt.want
				if earlier != "" {
					if err := os.WriteFile(c.backend, []byte(earlier), 0o600); err != nil {
						t.Fatal(err)
					}
					if want == "" {
						want = earlier
					}
				}
				err := c.Setup(t.Context(), []byte(`{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", `+tt.plugin+`}`))
				if works := tt.iptables || tt.nft; (err == nil) != works {
					t.Errorf("error %v", err)
				}
				if got := c.remembered(); got != want {
					t.Errorf("remembered %q, want %q", got, want)
				}
				files, err := filepath.Glob(c.backend + "*")
				if err != nil || len(files) > 1 {
					t.Errorf("files %q, error %v", files, err)
				}
			})
		}
	}
}

// Where neither works the CNI plugins choose iptables, and report its error.
func TestNeitherBackendWorks(t *testing.T) {
	fakeTables(t, false, false)
	if got := chooseBackend(); got != iptablesBackend {
		t.Errorf("chose %q", got)
	}
}

// What setup has chosen is in ADD, CHECK and DEL, and in the condition that spares ::1; add and del execute no iptables
// to find out again.
func TestSetupChoosesForAddAndDel(t *testing.T) {
	plugins := fakePlugins(t, "bridge", "portmap")
	c := newCNI(t, plugins)
	calls := fakeTables(t, false, true)
	const (
		network = `{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0",
			"plugins": [{"type": "bridge", "ipMasq": true}, {"type": "portmap", "capabilities": {"portMappings": true}}]`
		ports = `, "runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]}`
	)
	if err := c.Setup(t.Context(), []byte(network+`}`)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(calls); err != nil { // setup has executed iptables
		t.Fatal(err)
	}
	pod := plugin.Pod{Namespace: "/proc/thread-self/ns/net", UUID: "pod", Interface: "lo"} // with the plugins' address
	if _, err := c.Add(t.Context(), []byte(network+ports+`}`), pod); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("add executed iptables: %s", text)
	}
	check := *c
	check.check = true
	if err := check.Setup(t.Context(), []byte(network+`}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Del(t.Context(), []byte(network+ports+`}`), pod); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(calls); err == nil {
		t.Errorf("del, or setup with a pod that is connected, executed iptables: %s", text)
	}
	for _, command := range []string{"ADD", "CHECK", "DEL"} {
		for kind, want := range map[string][]string{
			"bridge":  {`"ipMasqBackend":"nftables"`},
			"portmap": {`"backend":"nftables"`, `"conditionsV6":["ip6","daddr","!=","::1"]`},
		} {
			config, err := os.ReadFile(filepath.Join(plugins, kind+"-"+command))
			if err != nil {
				t.Error(err)
			}
			for _, text := range want {
				if !strings.Contains(string(config), text) {
					t.Errorf("%s of %s: %s, want %s", command, kind, config, text)
				}
			}
		}
	}
}

// The choice stays while a pod is connected, whose rules are those of that backend.
func TestBackendStaysWhileAPodIsConnected(t *testing.T) {
	c := newCNI(t, fakePlugins(t, "portmap"))
	const network = `{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", "type": "portmap"}`
	pod := plugin.Pod{Namespace: t.TempDir(), UUID: "pod", Interface: "eth0"}
	for _, step := range []struct {
		iptables bool
		do       func() error
		want     string
	}{
		{true, func() error { return nil }, "iptables"},
		{false, func() error { _, err := c.Add(t.Context(), []byte(network), pod); return err }, "iptables"},
		{false, func() error { return c.Del(t.Context(), []byte(network), pod) }, "nftables"},
	} {
		fakeTables(t, step.iptables, true)
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if err := c.Setup(t.Context(), []byte(network)); err != nil {
			t.Fatal(err)
		}
		if got := c.remembered(); got != step.want {
			t.Errorf("remembered %q, want %q", got, step.want)
		}
	}
}

// A choice that cannot be written is setup's error, with the file's path.
func TestBackendCannotBeWritten(t *testing.T) {
	c := newCNI(t, fakePlugins(t, "portmap"))
	fakeTables(t, true, true)
	if err := os.Mkdir(c.backend, 0o700); err != nil {
		t.Fatal(err)
	}
	err := c.Setup(t.Context(), []byte(`{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", "type": "portmap"}`))
	if err == nil || !strings.Contains(err.Error(), c.backend) {
		t.Errorf("error %v", err)
	}
	if got := c.remembered(); got != "" {
		t.Errorf("remembered %q", got)
	}
}
