package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The file below a program that a daemon has mounted becomes the program, also after a copy that was cut short.
func TestAMountedProgramIsAlsoBelowItsMount(t *testing.T) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	for name, before := range map[string]string{"empty": "", "cut short": "\x7f"} {
		if err := os.WriteFile(program, []byte(before), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(self, program, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(program, "fill-probe").CombinedOutput()
		if err := unix.Unmount(program, 0); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if out, err := exec.Command("cmp", program, self).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
