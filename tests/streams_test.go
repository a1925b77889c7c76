package tests

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// listInodes is a script that prints which files its shell has as stdin, stdout and stderr.
const listInodes = `list=$(for n in 0 1 2; do stat -L -c %d:%i /proc/$$/fd/$n; done); echo "$list"`

func inodeOf(t *testing.T, f *os.File) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// A command could open again, with other access, what it holds of its caller. The same goes for the app, whose stdin is
// a null device: the machine's would lose its mode.
func TestNoProcessOfAPodHoldsAFileOfItsCaller(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", listInodes+"; exec sleep 1000")))
	file := b.Write("file", "")
	open := func(path string, flag int) *os.File {
		f, err := os.OpenFile(path, flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	null := open(os.DevNull, os.O_RDWR)
	harness.Eventually(t, "the app has listed its files", func() bool { return strings.Count(p.Logs("a"), "\n") == 3 })
	if list := p.Logs("a"); strings.Contains("\n"+list, "\n"+inodeOf(t, null)+"\n") {
		t.Errorf("the app has the machine's null device: %s", list)
	}
	in, out := b.Pipe()
	_, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, other := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer socket.Close()
	defer other.Close()
	for name, stdio := range map[string][2]*os.File{
		"pipe": {in, out}, "socket": {socket, socket}, "terminal": {tty, tty}, "file": {open(file, os.O_RDWR), open(file, os.O_RDWR)},
		"file for append": {open(file, os.O_RDONLY), open(file, os.O_WRONLY|os.O_APPEND)}, "folder": {open("/", os.O_RDONLY), out},
		"null device": {null, null}, "device": {open("/dev/zero", os.O_RDONLY), open("/dev/zero", os.O_WRONLY)}, "closed": {null, null},
	} {
		for _, interactive := range []bool{false, true} {
			cmd := b.Command("exec", fmt.Sprintf("--interactive=%t", interactive), "p", "--", "/bin/sh", "-c", "("+listInodes+") >/tmp/list; exit 4")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[1]
			if name == "closed" {
				cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `"$0" "$@" <&- >&- 2>&-`}, cmd.Args...)
			}
			if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 4 {
				t.Errorf("%s: exit status %d", name, cmd.ProcessState.ExitCode())
			}
			list := p.Exec("a", "cat", "/tmp/list").Stdout
			for _, f := range []*os.File{stdio[0], stdio[1], null} {
				if strings.Count(list, ":") != 3 || strings.Contains("\n"+list, "\n"+inodeOf(t, f)+"\n") {
					t.Errorf("%s, interactive %t: the command has %s of its caller: %s", name, interactive, f.Name(), list)
				}
			}
		}
	}
}

// The host's shell reads its script from a pipe, which a command must neither empty nor write to.
func TestACommandHasNoHandOnItsCallersScript(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	launcher := b.Command("exec", "p", "--", "/bin/sh", "-c", "cat; echo echo injected >/proc/self/fd/0; true")
	script := b.Write("script", "\"$@\"\necho first\necho second\n")
	host := exec.Command("sh", append([]string{"-c", `cat "$0" | sh -s "$@"`, script, launcher.Path}, launcher.Args[1:]...)...)
	host.Env = launcher.Env
	if r := harness.Finish(t, host); r.Code != 0 || r.Stdout != "first\nsecond\n" {
		t.Errorf("%+v", r)
	}
}
