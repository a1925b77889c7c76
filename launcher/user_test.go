package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/build"
)

// Another user than the image's has the groups of the image's own files, unless --user names one.
func TestAnotherUserHasItsOwnGroups(t *testing.T) {
	h := newHost(t)
	root := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:5::/:/bin/sh\nweb:x:7:8::/:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte("own:x:5:root\nother:x:6:root,web\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	entries, err := build.Tree(root, false)
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.NewReplacer("example.com/one", "example.com/user", `"group":"8"`, `"group":"8","supplementaryGIDs":[9]`).Replace(appManifest)
	h.run("image", "import", h.write("user.aci", func(b *bytes.Buffer) error { return build.Write(b, []byte(manifest), entries) }))
	for user, want := range map[string]string{
		"0":      `"user": "0", "group": "5", "supplementaryGIDs": [ 6 ],`,
		"root":   `"user": "root", "group": "5", "supplementaryGIDs": [ 6 ],`,
		"0:3":    `"user": "0", "group": "3", "supplementaryGIDs": [ 9 ],`,
		"4":      `"user": "4", "group": "0",`,
		"/x":     `"user": "/x", "group": "8", "supplementaryGIDs": [ 9 ],`,
		"nobody": `"user": "nobody", "group": "8", "supplementaryGIDs": [ 9 ],`,
	} {
		h.run("run", "--detach", "--name", "p", "--user", user, "example.com/user")
		if out := strings.Join(strings.Fields(h.run("inspect", "p")), " "); !strings.Contains(out, want) {
			t.Errorf("--user %s: %s, want %s", user, out, want)
		}
		h.run("rm", "--force", "p")
	}
}
