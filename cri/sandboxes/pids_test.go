package sandboxes

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A holder that cannot be looked at may live: it is neither replaced nor left without its pin.
func TestAHolderThatCannotBeLookedAtIsNotGone(t *testing.T) {
	dir := t.TempDir()
	if pid, err := holderOf(dir); pid != 0 || err != nil {
		t.Errorf("no holder: %d, %v", pid, err)
	}
	loop := filepath.Join(dir, holderFile)
	if err := unix.Symlink(holderFile, loop); err != nil { // the file is there, and reading it fails
		t.Fatal(err)
	}
	if pid, err := new(Maker).PIDs(dir); err == nil {
		t.Errorf("PIDs: %q", pid)
	}
	if err := releasePIDs(dir); err == nil {
		t.Error("the namespace is released")
	}
	if err := os.Remove(loop); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(loop, []byte("1073741824"), 0o600); err != nil {
		t.Fatal(err)
	}
	if pid, err := holderOf(dir); pid != 0 || err != nil {
		t.Errorf("a holder that has ended: %d, %v", pid, err)
	}
}
