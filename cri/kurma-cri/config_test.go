package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/cri/server"
	"kurma.io/stager/names"

	"github.com/google/go-cmp/cmp"
)

// read reads a configuration file with that text.
func read(t *testing.T, text string) (server.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kurma-cri.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return readConfig(file)
}

func TestMissingKeysHaveTheirDefaults(t *testing.T) {
	got, err := read(t, `{"cgroupDriver": "cgroupfs"}`) // whose default depends on the machine
	if err != nil {
		t.Fatal(err)
	}
	want := server.Config{
		Socket: "/run/kurma-cri/kurma-cri.sock", State: "/var/lib/kurma-cri", StagerImage: names.Image,
		CgroupDriver: "cgroupfs", NetworkConfigDirectory: "/etc/cni/net.d", NetworkPluginDirectories: []string{"/opt/cni/bin"},
		StreamAddress: "127.0.0.1:0", RegistriesDirectory: "/etc/kurma/certs.d",
		CDISpecDirectories: []string{"/etc/cdi", "/var/run/cdi"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestKeysReplaceTheDefaults(t *testing.T) {
	got, err := read(t, `{"socket": "/a/socket", "state": "/a/state", "stagerImage": "file:///a.aci", "trustedKeys": ["/a.asc"],
		"trustDirectory": "/a/trust", "insecureRegistries": ["registry:5000"], "registriesDirectory": "/etc/containerd/certs.d", "cgroupDriver": "systemd",
		"networkConfigDirectory": "/a/net.d", "networkPluginDirectories": [], "streamAddress": "10.0.0.1:10010", "cdiSpecDirectories": ["/a/cdi"]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := server.Config{
		Socket: "/a/socket", State: "/a/state", StagerImage: "file:///a.aci", TrustedKeys: []string{"/a.asc"},
		TrustDirectory: "/a/trust", InsecureRegistries: []string{"registry:5000"}, CgroupDriver: "systemd",
		NetworkConfigDirectory: "/a/net.d", NetworkPluginDirectories: []string{}, StreamAddress: "10.0.0.1:10010", RegistriesDirectory: "/etc/containerd/certs.d",
		CDISpecDirectories: []string{"/a/cdi"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What is wrong with a configuration file is one line, which names the file and the key.
func TestWrongConfigurationIsOneLine(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"unknown key":            {`{"sokcet": "/s"}`, `unknown key "sokcet"`},
		"key twice":              {`{"state": "/a", "state": "/b"}`, "given twice"},
		"wrong type":             {`{"socket": 5}`, "socket: 5: must be a string"},
		"wrong type in a list":   {`{"trustedKeys": ["/a", 7]}`, "trustedKeys[1]: 7: must be a string"},
		"a word, want a list":    {`{"insecureRegistries": "all"}`, `insecureRegistries: "all": must be a list`},
		"no JSON":                {"{\n\"socket\": \"/s\",\n}", "line 3, column 1"},
		"cut off":                {`{"socket": "/s"`, "not a JSON document"},
		"nothing":                {"", "want a JSON object"},
		"a list":                 {"[]", "want a JSON object"},
		"null":                   {"null", "want a JSON object"},
		"more than one document": {"{} {}", "more follows after the JSON object"},
		"unknown driver":         {`{"cgroupDriver": "cgroup"}`, `cgroupDriver "cgroup": want "systemd" or "cgroupfs"`},
		"relative socket":        {`{"socket": "s"}`, `socket "s": want an absolute path`},
		"relative state":         {`{"state": "./s"}`, `state "./s": want an absolute path`},
		"relative CNI folder":    {`{"networkConfigDirectory": "net.d"}`, `networkConfigDirectory "net.d": want an absolute path`},
		"relative plugins' folder": {
			`{"networkPluginDirectories": ["/opt/cni/bin", "cni"]}`, `networkPluginDirectories "cni": want an absolute path`,
		},
		"relative folder of CDI": {`{"cdiSpecDirectories": ["cdi"]}`, `cdiSpecDirectories "cdi": want an absolute path`},
		"address without a port": {`{"streamAddress": "10.0.0.1"}`, `streamAddress "10.0.0.1": want HOST:PORT`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(t, test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error %v, want one line with %q", err, test.want)
			}
			if !strings.Contains(err.Error(), "kurma-cri.json") {
				t.Errorf("error %v does not name the file", err)
			}
		})
	}
}

func TestNamedConfigurationMustExist(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none.json")
	_, err := readConfig(file)
	if want := "read configuration: open " + file + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
