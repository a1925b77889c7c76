package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/signing"
)

// version is an image of one app with that version, whose exec is the version.
func (h *host) version(name, version string, key *signing.Key) string {
	h.t.Helper()
	file := fmt.Sprintf("%s-%s-%v.aci", filepath.Base(name), version, key != nil)
	path := h.image(file, fmt.Sprintf(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":%q,"labels":[{"name":"version","value":%q}],"app":{"exec":["/%s"],"user":"0","group":"0"}}`,
		name, version, version))
	if key != nil {
		h.sign(path, key)
	}
	return path
}

// stagerVersion is a stager image with that version.
func (h *host) stagerVersion(version string, key *signing.Key) string {
	return h.stagerImage("stager-"+version+".aci", fmt.Sprintf(`,"labels":[{"name":"version","value":%q}]`, version), key)
}

// starts runs a pod and returns the IDs of its stager and of its first layer, and the warnings.
func (h *host) starts(args ...string) (stager, layer, stderr string) {
	h.t.Helper()
	r := h.try(append([]string{"run", "--detach", "--name", "p"}, args...)...)
	if r.code != 0 {
		h.t.Fatalf("run %s: %d: %s", args, r.code, r.stderr)
	}
	defer func() {
		h.run("stop", "p")
		h.run("gc")
	}()
	plans, err := filepath.Glob(filepath.Join(h.dir, "pods", "*", "plan.json"))
	if err != nil || len(plans) != 1 {
		h.t.Fatalf("%v, %v", plans, err)
	}
	var plan struct {
		StagerImage string
		Layers      []struct{ ID string }
	}
	if err := json.Unmarshal(must(os.ReadFile(plans[0])), &plan); err != nil {
		h.t.Fatal(err)
	}
	return plan.StagerImage, plan.Layers[0].ID, r.stderr
}

func TestANameOfTheStagerIsSquatted(t *testing.T) {
	h := bareHost(t)
	h.run("image", "import", h.version("example.com/one", "1", h.key))
	good := strings.TrimSpace(h.run("image", "import", h.stagerVersion("2.0", h.key)))
	squatters := []string{
		h.stagerVersion("9.0", nil),
		h.stagerVersion("9.1", newKey(t)),
		h.stagerImage("s.aci", `,"labels":[{"name":"version","value":"9.2"}],"dependencies":[{"imageName":"example.com/one"}]`, h.key),
		h.stagerVersion("1.0", h.key), // an old one that is imported again
	}
	h.run(append([]string{"image", "import"}, squatters...)...)
	stager, _, warnings := h.starts("example.com/one")
	if stager != good {
		t.Errorf("the stager is %s, want %s", stager, good)
	}
	for _, words := range []string{"not signed; the image is ignored", "signed by an unknown key; the image is ignored", "dependencies, which"} {
		if !strings.Contains(warnings, words) {
			t.Errorf("no %q in the warnings:\n%s", words, warnings)
		}
	}
}

func TestANameMeansTheNewestTrustedVersion(t *testing.T) {
	name := "example.com/app"
	tests := []struct {
		name    string
		images  func(h *host) []string // in the order of import
		pin     func(ids []string) string
		ref     string
		want    int
		warning string // "" for none
	}{
		{"versions are numbers", func(h *host) []string {
			return []string{h.version(name, "1.10", h.key), h.version(name, "1.9", h.key), h.version(name, "1.10-rc1", h.key)}
		}, nil, name, 0, ""},
		{"a version that is asked for", func(h *host) []string {
			return []string{h.version(name, "1", h.key), h.version(name, "2", h.key)}
		}, nil, name + ":1", 0, ""},
		{"an unsigned newer one", func(h *host) []string {
			return []string{h.version(name, "1", h.key), h.version(name, "2", nil)}
		}, nil, name, 0, "without a good signature"},
		{"none is signed", func(h *host) []string {
			return []string{h.version(name, "2", nil), h.version(name, "1", nil)}
		}, nil, name, 0, ""},
		{"signed by a key that is not trusted", func(h *host) []string {
			return []string{h.version(name, "2", newKey(h.t))}
		}, nil, name, 0, "no good signature by a trusted key"},
		{"two signers", func(h *host) []string {
			other := newKey(h.t)
			public := h.write("other.asc", func(b *bytes.Buffer) error { return other.WritePublic(b) })
			h.run("trust", "add", "--fingerprint", other.Fingerprint(), public)
			return []string{h.version(name, "1", h.key), h.version(name, "2", other)}
		}, nil, name, 1, "signed by 2 keys"},
		{"pinned to an ID", func(h *host) []string {
			return []string{h.version(name, "1", nil), h.version(name, "2", h.key)}
		}, func(ids []string) string { return ids[0] }, name, 0, ""},
		{"pinned to a version", func(h *host) []string {
			return []string{h.version(name, "1", h.key), h.version(name, "2", h.key)}
		}, func([]string) string { return "1" }, name, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := bareHost(t)
			h.stagerKey()
			ids := strings.Fields(h.run(append([]string{"image", "import"}, tt.images(h)...)...))
			if tt.pin != nil {
				h.configure(fmt.Sprintf(`"imagePins":{%q:%q}`, name, tt.pin(ids)))
			}
			_, layer, stderr := h.starts(tt.ref)
			if layer != ids[tt.want] {
				t.Errorf("image %s, want %s of %s", layer, ids[tt.want], ids)
			}
			if tt.warning == "" && stderr != "" || !strings.Contains(stderr, tt.warning) {
				t.Errorf("warnings %q, want %q", stderr, tt.warning)
			}
		})
	}
}

// stagerKey imports a stager image that the host's key has signed.
func (h *host) stagerKey() { h.run("image", "import", h.stagerImage("stager.aci", "", h.key)) }

// configure adds keys to the configuration.
func (h *host) configure(keys string) {
	h.t.Helper()
	path := filepath.Join(h.dir, "config.json")
	config := strings.TrimSuffix(strings.TrimSpace(string(must(os.ReadFile(path)))), "}")
	h.text("config.json", config+","+keys+"}")
}

func TestAPinThatNoImageMeets(t *testing.T) {
	h := newHost(t)
	h.configure(`"imagePins":{"example.com/one":"7"}`)
	h.refuse(1, "imagePins in the configuration wants 7", "run", "example.com/one")
}

func TestADependencyIsNotSquatted(t *testing.T) {
	h := bareHost(t)
	h.stagerKey()
	base := strings.TrimSpace(h.run("image", "import", h.version("example.com/base", "1", h.key)))
	h.run("image", "import", h.version("example.com/base", "2", nil),
		h.image("top.aci", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/top","app":{"exec":["/x"],"user":"0","group":"0"},"dependencies":[{"imageName":"example.com/base"}]}`))
	r := h.try("run", "--detach", "--name", "p", "example.com/top")
	if r.code != 0 || !strings.Contains(r.stderr, `"example.com/base" without a good signature`) {
		t.Fatalf("%+v", r)
	}
	defer h.run("stop", "p")
	plans := must(filepath.Glob(filepath.Join(h.dir, "pods", "*", "plan.json")))
	if plan := string(must(os.ReadFile(plans[0]))); !strings.Contains(plan, base) {
		t.Errorf("the base is not %s: %s", base, plan)
	}
}

// TestTrustIsAsItIsNow changes what the launcher trusted at the import, and looks at a launch and
// at what the list says.
func TestTrustIsAsItIsNow(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, h *host, image string) // the folder of the stager image
		words  string
		listed string
	}{
		{
			"keyring emptied", func(_ *testing.T, h *host, _ string) { h.untrust() },
			"unknown key", "by an unknown key",
		},
		{"manifest edited", func(t *testing.T, _ *host, image string) {
			path := filepath.Join(image, "manifest")
			edited := bytes.Replace(must(os.ReadFile(path)), []byte(`"exec":["`+names.Exec), []byte(`"exec":["/bin/other`), 1)
			if err := os.WriteFile(path, edited, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "manifest altered since", "not trusted: manifest altered since"},
		{"signature of another image", func(t *testing.T, h *host, image string) {
			other := h.version("example.com/other", "1", h.key)
			if err := os.WriteFile(filepath.Join(image, "image.aci.asc"), must(os.ReadFile(other+".asc")), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "invalid signature", "not trusted: verify signature"},
		{"files altered", func(t *testing.T, _ *host, image string) {
			if err := os.WriteFile(filepath.Join(image, "rootfs", "more"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "files altered since", "not trusted: files altered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			h.up()
			if out := h.run("image", "list", "--no-trunc"); !strings.Contains(out, "by "+h.key.Fingerprint()) {
				t.Errorf("image list: %s", out)
			}
			tt.change(t, h, filepath.Dir(h.listed()[stagerName].Rootfs))
			h.refuse(1, tt.words, "run", "example.com/one")
			_, line, _ := strings.Cut(h.run("image", "list", "--no-trunc"), stagerName)
			line, _, _ = strings.Cut(line, "\n")
			if !strings.Contains(line, tt.listed) || strings.Contains(line, h.key.Fingerprint()) {
				t.Errorf("image list: %s; want %q", line, tt.listed)
			}
		})
	}
}

// untrust leaves no key in the keyring.
func (h *host) untrust() {
	h.t.Helper()
	path := filepath.Join(h.dir, "config.json")
	h.text("config.json", strings.Replace(string(must(os.ReadFile(path))), `["keys.asc"]`, `[]`, 1))
}

func TestTrustCommands(t *testing.T) {
	h := bareHost(t)
	h.untrust()
	h.run("image", "import", h.stagerImage("stager.aci", "", h.key), h.image("one.aci", appManifest))
	h.refuse(1, "unknown key", "run", "example.com/one")
	public, fingerprint := filepath.Join(h.dir, "keys.asc"), h.key.Fingerprint()
	h.refuse(1, "is not confirmed: compare the fingerprint", "trust", "add", public)
	h.refuse(1, "matches no --fingerprint", "trust", "add", "--fingerprint", newKey(t).Fingerprint(), public)
	if out := h.run("trust", "list"); strings.Count(out, "\n") != 1 {
		t.Errorf("trust list: %s", out)
	}
	h.run("trust", "add", "--prefix", "example.com", "--fingerprint", strings.ToUpper(fingerprint), public)
	h.refuse(1, "unknown key", "run", "example.com/one")
	h.run("trust", "add", "--prefix", filepath.Dir(stagerName), "--fingerprint", fingerprint, public)
	h.up()
	if out := h.run("trust", "list"); strings.Count(out, fingerprint) != 2 || !strings.Contains(out, "example.com      valid") {
		t.Errorf("trust list: %s", out)
	}
	h.refuse(1, "no key", "trust", "rm", fingerprint[33:])
	h.run("trust", "rm", "--prefix", "example.com", fingerprint[20:])
	h.up()
	h.run("trust", "rm", fingerprint)
	h.refuse(1, "unknown key", "run", "example.com/one")
	h.refuse(1, "no key", "trust", "rm", fingerprint)
}

func TestAPodRunsWithANullStagerConfig(t *testing.T) {
	h := newHost(t)
	config := string(must(os.ReadFile(filepath.Join(h.dir, "config.json"))))
	h.text("config.json", strings.Replace(config, "{", `{"defaultStagerConfig":null,`, 1))
	h.run("run", "--detach", "--name", "p", "example.com/one")
	h.run("rm", "--force", "p")
}

// A misspelt key of the configuration is named, with the one that may be meant.
func TestAMisspeltKeyOfTheConfigurationIsNamed(t *testing.T) {
	h := bareHost(t)
	good := string(must(os.ReadFile(filepath.Join(h.dir, "config.json"))))
	for key, words := range map[string]string{
		"parentCgroupNam": `unknown key "parentCgroupNam"`,
		"podsDir":         `unknown key "podsDir"`,
		"elephant":        `unknown key "elephant"` + "\n",
	} {
		h.text("config.json", `{"`+key+`":"x"}`)
		if r := h.try("ps"); r.code != 1 || !strings.Contains(r.stderr, words) {
			t.Errorf("%s: %+v, want %q", key, r, words)
		}
	}
	h.text("config.json", good)
}
