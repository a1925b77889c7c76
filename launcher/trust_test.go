package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/names"
)

// up starts a pod and stops it again: the stager is trusted.
func (h *host) up() {
	h.t.Helper()
	h.run("run", "--detach", "--name", "p", "example.com/one")
	h.run("rm", "--force", "p")
}

func TestAnUntrustedStagerIsRefused(t *testing.T) {
	altered := func(alter func(rootfs string) error) func(*testing.T, *host) string {
		return func(t *testing.T, h *host) string {
			h.run("image", "import", h.stagerImage("s.aci", "", h.key))
			if err := alter(h.listed()[stagerName].Rootfs); err != nil {
				t.Fatal(err)
			}
			return "altered"
		}
	}
	tests := []struct {
		name    string
		prepare func(t *testing.T, h *host) (words string)
	}{
		{"there is none", func(*testing.T, *host) string { return "no such image" }},
		{"unsigned", func(_ *testing.T, h *host) string {
			h.run("image", "import", h.stagerImage("s.aci", "", nil))
			return "not signed"
		}},
		{"unknown key", func(t *testing.T, h *host) string {
			h.run("image", "import", h.stagerImage("s.aci", "", newKey(t)))
			return "unknown key"
		}},
		{"key that is trusted no more", func(t *testing.T, h *host) string {
			h.run("image", "import", h.stagerImage("s.aci", "", h.key))
			h.trust(newKey(t))
			return "unknown key"
		}},
		{"dependencies", func(_ *testing.T, h *host) string {
			h.run("image", "import", h.stagerImage("s.aci", `,"dependencies":[{"imageName":"example.com/one"}]`, h.key))
			return "dependencies"
		}},
		{"content altered", altered(func(rootfs string) error {
			file, err := os.OpenFile(filepath.Join(rootfs, names.Exec), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer file.Close()
			_, err = file.WriteAt([]byte("x"), 100)
			return err
		})},
		{"altered and its time set back", altered(func(rootfs string) error {
			path := filepath.Join(rootfs, names.Exec)
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
				return err
			}
			return os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0))
		})},
		{"file added", altered(func(rootfs string) error {
			return os.WriteFile(filepath.Join(rootfs, names.CallInDir, "more"), nil, 0o755)
		})},
		{"file taken away", altered(func(rootfs string) error { return os.Remove(filepath.Join(rootfs, names.CallInDir, names.Run)) })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := bareHost(t)
			h.run("image", "import", h.image("one.aci", appManifest))
			words := tt.prepare(t, h)
			h.refuse(1, words, "run", "example.com/one")
		})
	}
}

func TestKeptFileIsVerifiedAgain(t *testing.T) {
	tests := []struct {
		name  string
		alter func(t *testing.T, h *host, image string)
		words string // "" for trusted
	}{
		{"as it was", func(*testing.T, *host, string) {}, ""},
		{"altered", func(t *testing.T, _ *host, image string) {
			if err := os.WriteFile(filepath.Join(image, "image.aci"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "invalid signature"},
		{"another signed image's", func(t *testing.T, h *host, image string) {
			for from, to := range map[string]string{"one.aci": "image.aci", "one.aci.asc": "image.aci.asc"} {
				data := must(os.ReadFile(filepath.Join(h.dir, from)))
				if err := os.WriteFile(filepath.Join(image, to), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}, "belongs to another image"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := bareHost(t)
			one := h.image("one.aci", appManifest)
			later := newKey(t)
			h.sign(one, later)
			h.run("image", "import", one, h.stagerImage("s.aci", "", later))
			tt.alter(t, h, filepath.Dir(h.listed()[stagerName].Rootfs))
			h.trust(later)
			if tt.words != "" {
				h.refuse(1, tt.words, "run", "example.com/one")
				return
			}
			h.up()
			if h.listed()[stagerName].SignedBy != later.Fingerprint() {
				t.Error("the signer is not written down")
			}
		})
	}
}

func TestAWrongSignatureIsRefused(t *testing.T) {
	h := bareHost(t)
	path := h.stagerImage("s.aci", "", h.key)
	other := h.image("other.aci", baseManifest)
	if err := os.Rename(path+".asc", other+".asc"); err != nil {
		t.Fatal(err)
	}
	h.refuse(1, "invalid signature", "image", "import", other)
	h.text("other.aci.asc", "no signature at all")
	h.refuse(1, "not an armored OpenPGP signature", "image", "import", other)
	if out := h.run("image", "list"); strings.Count(out, "\n") != 1 {
		t.Errorf("image list: %s", out)
	}
}

// run warns of an unsigned image only if a key is trusted for its name by a prefix.
func TestAnUnsignedImageIsAsAskedFor(t *testing.T) {
	h := newHost(t)
	h.run("image", "import", h.image("two.aci", strings.Replace(appManifest, "example.com/one", "example.com/two", 1)))
	if _, _, stderr := h.starts("example.com/two"); stderr != "" {
		t.Errorf("without a key for its name: %q", stderr)
	}
	key := newKey(t)
	file := h.write("prefix.asc", func(b *bytes.Buffer) error { return key.WritePublic(b) })
	h.run("trust", "add", "--prefix", "example.com/two", "--fingerprint", key.Fingerprint(), file)
	if _, _, stderr := h.starts("example.com/two"); !strings.Contains(stderr, `image "example.com/two" (sha512-`) || !strings.HasSuffix(stderr, " is not signed\n") {
		t.Errorf("with a key for its name: %q", stderr)
	}
	if _, _, stderr := h.starts("example.com/one"); stderr != "" {
		t.Errorf("another name: %q", stderr)
	}
}

func TestASignatureMayComeLater(t *testing.T) {
	h := bareHost(t)
	path := h.stagerImage("s.aci", "", nil)
	h.run("image", "import", path, h.image("one.aci", appManifest))
	h.refuse(1, "not signed", "run", "example.com/one")
	h.sign(path, h.key)
	h.run("image", "import", path)
	h.up()
}

// TestAnUnknownKeyReplacesNoSignature imports a trusted stager again, signed by a key that
// is not trusted.
func TestAnUnknownKeyReplacesNoSignature(t *testing.T) {
	h := bareHost(t)
	path := h.stagerImage("s.aci", "", h.key)
	h.run("image", "import", path, h.image("one.aci", appManifest))
	h.sign(path, newKey(t))
	h.run("image", "import", path)
	if signer := h.listed()[stagerName].SignedBy; signer != h.key.Fingerprint() {
		t.Errorf("signed by %q", signer)
	}
	h.up()
}

func TestASignatureDoesNotCoverWhatWasAlteredBefore(t *testing.T) {
	h := bareHost(t)
	path := h.stagerImage("s.aci", "", nil)
	h.run("image", "import", path, h.image("one.aci", appManifest))
	if err := os.WriteFile(filepath.Join(h.listed()[stagerName].Rootfs, names.Exec), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.sign(path, h.key)
	h.refuse(1, "has been altered", "image", "import", path)
	h.refuse(1, "not signed", "run", "example.com/one")
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	h := bareHost(t)
	tests := []struct{ name, config, words string }{
		{"not JSON", "podsDirectory: x", "invalid character"},
		{"unknown key", `{"podDirectory":"x"}`, `unknown key "podDirectory"`},
		{"nothing", ``, "the document is empty"},
		{"cut short", `{"podsDirectory":"x"`, "unexpected end of JSON input"},
		{"key twice", `{"podsDirectory":"x","PodsDirectory":"y"}`, `given twice, as "podsDirectory" and "PodsDirectory"`},
		{"two objects", `{}{}`, "more than one"},
		{"a bracket more", `{}}`, "more than one"},
		{"wrong type", `{"trustedKeys":"x"}`, "trustedKeys"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h.text("config.json", tt.config)
			h.refuse(1, tt.words, "ps")
		})
	}
	h.text("config.json", `{"trustedKeys":["nowhere.asc"],"imagesDirectory":"images","podsDirectory":"pods"}`)
	h.refuse(1, "nowhere.asc", "image", "import", h.image("one.aci", appManifest))
}
