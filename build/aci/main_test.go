package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/appc/spec/schema"

	"kurma.io/stager/names"
	"kurma.io/stager/signing"
)

const repositoryManifest = "../../aci-manifest.json"

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// verifyImage checks an image's signature against a keyring file.
func verifyImage(t *testing.T, image, keys string) error {
	t.Helper()
	ring, err := signing.ReadKeyRing(keys)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := os.ReadFile(image + ".asc")
	if err != nil {
		t.Fatal(err)
	}
	_, err = signing.Verify(ring, bytes.NewReader(data), bytes.NewReader(sig))
	return err
}

func TestAStagerImageIsSignedWithAThrowawayKey(t *testing.T) {
	manifest, err := filepath.Abs(repositoryManifest)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	o := options{manifest: manifest, stager: write(t, dir, "stager", "program"), version: "1.2.3", sign: true}
	if err := run(o); err != nil {
		t.Fatal(err)
	}
	image := names.Program + "-1.2.3-linux-amd64.aci"
	if err := verifyImage(t, image, image+".pub"); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAStagerImageIsSignedWithTheGivenKey(t *testing.T) {
	dir := t.TempDir()
	key, err := openpgp.NewEntity("test", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var private, public bytes.Buffer
	if err := errors.Join(key.SerializePrivate(&private, nil), key.Serialize(&public)); err != nil {
		t.Fatal(err)
	}
	o := options{
		manifest: repositoryManifest,
		stager:   write(t, dir, "stager", "program"),
		sign:     true,
		key:      keyOptions{file: write(t, dir, "private.asc", private.String())},
		out:      filepath.Join(dir, "x.aci"),
	}
	if err := run(o); err != nil {
		t.Fatal(err)
	}
	if err := verifyImage(t, o.out, write(t, dir, "public.asc", public.String())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.out + ".pub"); err == nil {
		t.Error("a key was made though one was given")
	}
}

func TestANewVersionLeavesTheRestOfTheManifest(t *testing.T) {
	path := write(t, t.TempDir(), "m.json", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b",
		"labels":[{"name":"version","value":"1"},{"name":"os","value":"linux"}],"unknown":{"a":"<>"}}`)
	m, err := readManifest(options{manifest: path, version: "2"})
	if err != nil || m.labels["version"] != "2" || m.labels["os"] != "linux" {
		t.Errorf("%v, %v", m.labels, err)
	}
	if !strings.Contains(string(m.json), `"a": "<>"`) {
		t.Errorf("%s", m.json)
	}
}

// asStager reads a manifest as that of a stager image.
func asStager(t *testing.T, path string) (schema.ImageManifest, error) {
	t.Helper()
	m, err := readManifest(options{manifest: path, stager: "binary", isolators: []string{"a/b", "a/c"}})
	var parsed schema.ImageManifest
	if err == nil {
		if err := json.Unmarshal(m.json, &parsed); err != nil {
			t.Fatal(err)
		}
	}
	return parsed, err
}

func TestAStagersManifestHasTheNames(t *testing.T) {
	m, err := asStager(t, repositoryManifest)
	if err != nil {
		t.Fatal(err)
	}
	if m.Name.String() != names.Image || !slices.Equal(m.App.Exec, []string{names.Exec}) || m.App.User != "0" {
		t.Errorf("name %s, app %+v", m.Name, m.App)
	}
	for annotation, want := range map[string]string{
		names.LogDirAnnotation: names.LogDir, names.EventsAnnotation: names.EventsFile, names.IsolatorsAnnotation: "a/b a/c",
	} {
		if path, ok := m.Annotations.Get(annotation); !ok || path != want {
			t.Errorf("annotations %v, want %s", m.Annotations, want)
		}
	}
}

func TestAStagersManifestKeepsOtherNames(t *testing.T) {
	m, err := asStager(t, write(t, t.TempDir(), "m.json", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/mine",
		"annotations":[{"name":"`+names.LogDirAnnotation+`","value":"/logs"},{"name":"created","value":"2026-11-21T00:00:00Z"}],
		"app":{"exec":["/other","x"],"user":"0","group":"0"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "example.com/mine" || !slices.Equal(m.App.Exec, []string{"/other", "x"}) {
		t.Errorf("name %s, app %+v", m.Name, m.App)
	}
	if dir, _ := m.Annotations.Get(names.LogDirAnnotation); dir != "/logs" || len(m.Annotations) != 3 {
		t.Errorf("annotations %v", m.Annotations)
	}
}

func TestAnotherImagesManifestIsLeftAlone(t *testing.T) {
	m, err := readManifest(options{manifest: repositoryManifest, root: "root"})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(repositoryManifest); err != nil || !bytes.Equal(m.json, data) {
		t.Errorf("%v, %s", err, m.json)
	}
}

func TestAStagersManifestIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"null":            `null`,
		"a list":          `[]`,
		"no app":          `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b"}`,
		"app null":        `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b","app":null}`,
		"a number":        `{"acKind":"ImageManifest","acVersion":"0.8.11","name":3,"app":{"exec":["/x"],"user":"0","group":"0"}}`,
		"exec not a list": `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b","app":{"exec":"/x","user":"0","group":"0"}}`,
		"no exec":         `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b","app":{"user":"0","group":"0"}}`,
		"annotation text": `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b","annotations":"x","app":{"exec":["/x"],"user":"0","group":"0"}}`,
		"not JSON":        `{`,
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), "m.json", text)
			for _, version := range []string{"", "1"} {
				_, err := readManifest(options{manifest: path, stager: "binary", version: version})
				if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
					t.Errorf("version %q: %v, want one line", version, err)
				}
			}
		})
	}
}

func TestParseTakesSeveralFoldersToAdd(t *testing.T) {
	o, err := parse(flag.NewFlagSet("build", flag.ContinueOnError), strings.Fields("--manifest m --stager s --add a --add b"))
	if err != nil || !slices.Equal(o.add, []string{"a", "b"}) {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestRunRefusesWrongFiles(t *testing.T) {
	dir := t.TempDir()
	root := write(t, dir, "root", "")
	bad := write(t, dir, "bad.json", `{"acKind":"PodManifest"}`)
	for name, o := range map[string]options{
		"no manifest":      {manifest: "/nonexistent", root: root},
		"bad manifest":     {manifest: bad, root: root},
		"no root":          {manifest: repositoryManifest, root: "/nonexistent"},
		"no stager":        {manifest: repositoryManifest, stager: "/nonexistent"},
		"no key":           {manifest: repositoryManifest, stager: root, key: keyOptions{file: "/nonexistent"}, sign: true},
		"no output folder": {manifest: repositoryManifest, stager: root, out: "/nonexistent/x.aci"},
	} {
		t.Run(name, func(t *testing.T) {
			if o.out == "" {
				o.out = filepath.Join(dir, "x.aci")
			}
			if err := run(o); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want one line", err)
			}
		})
	}
}

func TestParseRefusesWrongUsage(t *testing.T) {
	for _, args := range []string{"", "--manifest m", "--manifest m --root r", "--manifest m --root r --stager s -o x", "--manifest m --stager s more", "--manifest m --root r --add a -o x", "--manifest m --stager s --unsigned --key k", "--manifest m --stager s --key k --gpg g"} {
		if _, err := parse(flag.NewFlagSet("build", flag.ContinueOnError), strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
