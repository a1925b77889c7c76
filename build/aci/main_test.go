package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// verify checks an image's signature against a keyring file.
func verify(t *testing.T, image, keys string) error {
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

func TestStagerImageWithAThrowawayKey(t *testing.T) {
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
	image := "stager-1.2.3-linux-amd64.aci"
	if err := verify(t, image, image+".pub"); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestStagerImageWithAGivenKey(t *testing.T) {
	dir := t.TempDir()
	key, err := signing.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	var private, public bytes.Buffer
	if err := key.WritePrivate(&private); err != nil {
		t.Fatal(err)
	}
	if err := key.WritePublic(&public); err != nil {
		t.Fatal(err)
	}
	o := options{
		manifest: repositoryManifest,
		stager:   write(t, dir, "stager", "program"),
		sign:     true,
		key:      write(t, dir, "private.asc", private.String()),
		out:      filepath.Join(dir, "x.aci"),
	}
	if err := run(o); err != nil {
		t.Fatal(err)
	}
	if err := verify(t, o.out, write(t, dir, "public.asc", public.String())); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(o.out + ".pub"); err == nil {
		t.Error("a key was made though one was given")
	}
}

func TestVersionLeavesTheRestOfTheManifest(t *testing.T) {
	path := write(t, t.TempDir(), "m.json", `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a/b",
		"labels":[{"name":"version","value":"1"},{"name":"os","value":"linux"}],"unknown":{"a":"<>"}}`)
	m, err := readManifest(path, "2")
	if err != nil || m.labels["version"] != "2" || m.labels["os"] != "linux" {
		t.Errorf("%v, %v", m.labels, err)
	}
	if !strings.Contains(string(m.json), `"a": "<>"`) {
		t.Errorf("%s", m.json)
	}
}

func TestRunRefuses(t *testing.T) {
	dir := t.TempDir()
	root := write(t, dir, "root", "")
	bad := write(t, dir, "bad.json", `{"acKind":"PodManifest"}`)
	for name, o := range map[string]options{
		"no manifest":      {manifest: "/nonexistent", root: root},
		"bad manifest":     {manifest: bad, root: root},
		"no root":          {manifest: repositoryManifest, root: "/nonexistent"},
		"no stager":        {manifest: repositoryManifest, stager: "/nonexistent"},
		"no key":           {manifest: repositoryManifest, stager: root, key: "/nonexistent", sign: true},
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

func TestParseRefuses(t *testing.T) {
	for _, args := range []string{"", "--manifest m", "--manifest m --root r", "--manifest m --root r --stager s -o x", "--manifest m --stager s more"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
