package sandboxes

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

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

// A holder whose server is killed before it confirms the holder ends.
func TestAHolderThatIsNotConfirmedEnds(t *testing.T) {
	surroundings.Root(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", HoldPIDsCommand)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	var messages strings.Builder
	cmd.Stderr = &messages
	confirmation, err := cmd.StdinPipe()
	confined, outErr := cmd.StdoutPipe()
	if err := errors.Join(err, outErr); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err = confined.Read(make([]byte, 1))
	if err := errors.Join(err, confirmation.Close()); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || messages.String() != "hold PID namespace: EOF\n" {
		t.Errorf("%v, %q", err, messages.String())
	}
}

// attackWord is the argument that makes this program send process 1 every signal in every way.
const attackWord = "attack"

// No signal of a process in its namespace ends or stops a holder, also not of user 0 with all capabilities.
func TestNoSignalEndsAHolder(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	pin, err := new(Maker).PIDs(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := releasePIDs(dir); err != nil {
			t.Error(err)
		}
	})
	before, err := holderOf(dir)
	program, pathErr := os.Executable()
	if err := errors.Join(err, pathErr); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "nsenter", "--pid="+pin, "unshare", "--mount-proc", program, attackWord).CombinedOutput()
	if sent, _, _ := strings.Cut(string(out), " "); err != nil || sent == "0" || !strings.HasSuffix(string(out), " <nil>\n") {
		t.Errorf("%v: %s", err, out)
	}
	if after, err := holderOf(dir); after != before || err != nil {
		t.Errorf("the holder is process %d, %v, and was %d", after, err, before)
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(before), "status"))
	if err != nil || !strings.Contains(string(status), "\nState:\tS ") {
		t.Errorf("%v: %s", err, status)
	}
}
