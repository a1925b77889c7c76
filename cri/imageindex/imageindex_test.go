package imageindex

import (
	"os"
	"path/filepath"
	"testing"
)

// The next server's write replaces what a killed server has left.
func TestAKilledServerLeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "images.json")
	if err := os.WriteFile(path+".new", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Open(path).Add("sha512-1", Reference{Repository: "docker.io/a"}, "sha256:1"); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// The host docker.io is written in one way, and no other host or name is taken for it.
func TestReferencesHaveTheirHost(t *testing.T) {
	for text, want := range map[string]string{
		"nginx":                     "docker.io/library/nginx",
		"docker.io/library/nginx:1": "docker.io/library/nginx",
		"index.docker.io/a/b":       "docker.io/a/b",
		"index.docker.io/nginx":     "docker.io/library/nginx",
		"x-index.docker.io/a":       "x-index.docker.io/a",
		"index.docker.io:5000/a":    "index.docker.io:5000/a",
		"harbor.example/index.docker.io/library/nginx:1": "harbor.example/index.docker.io/library/nginx",
	} {
		if got, err := Parse(text); err != nil || got.Repository != want {
			t.Errorf("%s: %q, %v, want %q", text, got.Repository, err, want)
		}
	}
}
