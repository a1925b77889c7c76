package identity

import (
	"os"
	"path/filepath"
	"testing"
)

// Lines of /etc/passwd that are too short, or whose number is none, are skipped.
func TestShortLinesInPasswdAreSkipped(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("bob\nbob:x\n\n:\nbob:x:y:\nbob:x:1234\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	uid, gid, err := Resolve(root, "bob", "7")
	if err != nil || uid != 1234 || gid != 7 {
		t.Errorf("%d, %d, %v", uid, gid, err)
	}
}
