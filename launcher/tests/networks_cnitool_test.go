package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/tests/harness"
)

// cniCall is a command that the CNI project's plugin noop has recorded.
type cniCall struct {
	Command string
	CmdArgs struct {
		ContainerID, Netns, IfName, Args, Path string
		StdinData                              []byte
	}
}

// ours removes what is ours to choose: the container's ID and namespace, where programs are, and which pods GC
// has to spare.
func (c cniCall) ours(t *testing.T, folder string) map[string]any {
	t.Helper()
	var stdin map[string]any
	text := strings.ReplaceAll(string(c.CmdArgs.StdinData), folder, "FOLDER")
	if err := json.Unmarshal([]byte(text), &stdin); err != nil {
		t.Fatalf("stdin of noop: %v: %s", err, text)
	}
	for _, key := range []string{"cni.dev/attachments", "cni.dev/valid-attachments"} { // cnitool passes no list to GC
		delete(stdin, key)
	}
	return map[string]any{"command": c.Command, "interface": c.CmdArgs.IfName, "args": c.CmdArgs.Args, "stdin": stdin}
}

// buildCNI builds a program of the CNI project.
func buildCNI(t *testing.T, program, target string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", target, "github.com/containernetworking/cni/"+program)
	cmd.Dir = "../../netplugins"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, out)
	}
}

// noopFiles are the files of the plugin noop in a folder: what it is to return, and its record.
type noopFiles string

func (f noopFiles) path(name string) string { return filepath.Join(string(f), name) }

// write writes the files: each ADD returns an address.
func (f noopFiles) write(t *testing.T, version string) {
	t.Helper()
	result := `{"cniVersion": "` + version + `", "ips": [{"address": "10.1.2.3/24"}]}`
	if strings.HasPrefix(version, "0.") { // until 0.4.0 an address names its family
		result = `{"cniVersion": "` + version + `", "ips": [{"version": "4", "address": "10.1.2.3/24"}]}`
	}
	debug := fmt.Sprintf(`{"ReportResult": %q}`, result)
	for name, text := range map[string]string{"first": debug, "second": debug, "log": "[]"} {
		if err := os.WriteFile(f.path(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// calls returns the record, in which the folder was called inside.
func (f noopFiles) calls(t *testing.T, inside string) (calls []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(f.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	var all []cniCall
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		calls = append(calls, c.ours(t, inside))
	}
	return calls
}

// The CNI project's own tool and our launcher call the plugins of a configuration alike: a list and a single
// configuration, with what each version has. `network validate` calls CHECK of the pods that are connected, and
// STATUS; a plugin's first setup calls GC.
func TestPluginsAreCalledAsCNIToolCallsThem(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	buildCNI(t, "cnitool", filepath.Join(tools, "cnitool"))
	buildCNI(t, "plugins/test/noop", filepath.Join(tools, "noop"))
	const list = `"plugins": [
		{"type": "noop", "debugFile": "%[1]s/first", "commandLog": "%[1]s/log", "some": {"key": [1, "ü"]}, "capabilities": {"bandwidth": true}, "ipam": {}},
		{"type": "noop", "debugFile": "%[1]s/second", "commandLog": "%[1]s/log", "capabilities": {"portMappings": true, "dns": false}}]`
	const single = `"type": "noop", "debugFile": "%[1]s/first", "commandLog": "%[1]s/log", "capabilities": {"portMappings": true}, "args": {"own": [1]}`
	for _, tt := range []struct {
		name, version, conf, file string
		commands                  []string // of cnitool, those of the launcher's setup, run, network validate and stop
		calls                     int
	}{
		{"list", "1.0.0", list, "noop.conflist", []string{"add", "check", "del"}, 6},
		{"list with STATUS and GC", "1.1.0", list, "noop.conflist", []string{"status", "gc", "add", "status", "check", "del"}, 12},
		{"single", "0.4.0", single, "noop.conf", []string{"add", "check", "del"}, 3},
		{"single without CHECK", "0.3.1", single, "noop.conf", []string{"add", "del"}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			conf := func(folder string) string {
				return fmt.Sprintf(`"cniVersion": %q, `, tt.version) + fmt.Sprintf(tt.conf, folder)
			}
			const inside = "/var/lib/network"
			m := newNetMachine(t, `[{"name": "noop", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth7", `+conf(inside)+`}]`)
			state := noopFiles(filepath.Join(m.networks, "noop", "state"))
			if err := os.MkdirAll(state.path("bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("cp", filepath.Join(tools, "noop"), state.path("bin/noop")).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			state.write(t, tt.version)
			doc := netPodDoc{harness.PodOf(suite.Shell("s", "sleep 1000")), []map[string]any{{"name": "web", "hostPort": 80, "podPort": map[string]any{"name": "web", "protocol": "TCP", "port": 8080}}}}
			doc.Isolators = []any{harness.Isolator("resource/network-bandwidth", map[string]any{"default": true, "limit": "1M"})}
			p := m.connect("p", doc, "noop")
			if nets := m.networksOf(p); nets[0].address(false) != "10.1.2.3" {
				t.Errorf("networks %+v", nets)
			}
			m.Must("network", "validate", "noop")
			m.Must("stop", "p")

			theirs := noopFiles(t.TempDir())
			theirs.write(t, tt.version)
			if err := os.WriteFile(theirs.path(tt.file), []byte(`{"name": "noop", `+conf(string(theirs))+"}"), 0o600); err != nil {
				t.Fatal(err)
			}
			ns := newNetns(t)
			for _, command := range tt.commands {
				cmd := m.host.command(filepath.Join(tools, "cnitool"), command, "noop", "/proc/"+strconv.Itoa(ns.hold.Process.Pid)+"/ns/net")
				cmd.Env = append(os.Environ(), "CNI_PATH="+tools, "NETCONFPATH="+string(theirs), "CNI_IFNAME=eth7",
					`CAP_ARGS={"portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp"}],"bandwidth":{"ingressRate":8000000,"ingressBurst":800000,"egressRate":8000000,"egressBurst":800000}}`)
				if r := harness.Finish(t, cmd); r.Code != 0 {
					t.Fatalf("cnitool %s: %+v", command, r)
				}
			}
			want, got := theirs.calls(t, string(theirs)), state.calls(t, inside)
			if len(want) != tt.calls {
				t.Fatalf("cnitool has called %d times, want %d", len(want), tt.calls)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("calls of cnitool (-) and of the launcher (+):\n%s", diff)
			}
		})
	}
}
