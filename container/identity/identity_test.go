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
	uid, gid, err := Resolve(root, "bob", "7", false, nil)
	if err != nil || uid != 1234 || gid != 7 {
		t.Errorf("%d, %d, %v", uid, gid, err)
	}
}

// A number may be a name in the image's files (appc, aci.md), but not where the pod says that numbers are IDs.
func TestANumberMayBeAName(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"etc/passwd": "1000:x:0:0::/:/bin/sh\nbob:x:7:7\n", "etc/group": "1000:x:0:\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for numericIDs, want := range map[bool]uint32{false: 0, true: 1000} {
		if uid, gid, err := Resolve(root, "1000", "1000", numericIDs, nil); uid != want || gid != want || err != nil {
			t.Errorf("numeric IDs %t: %d, %d, %v; want %d", numericIDs, uid, gid, err, want)
		}
		if uid, _, err := Resolve(root, "bob", "1", numericIDs, nil); uid != 7 || err != nil {
			t.Errorf("numeric IDs %t: bob is %d, %v", numericIDs, uid, err)
		}
	}
}
