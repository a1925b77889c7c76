package surroundings

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain prints what a settled program has, if it is called by settledWord.
func TestMain(m *testing.M) {
	Settle()
	if len(os.Args) == 2 && os.Args[1] == settledWord {
		out, err := exec.Command("/bin/sh", "-c", script).Output()
		if err != nil {
			panic(err)
		}
		_, _ = os.Stdout.Write(out)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	settledWord = "settled"
	// Without signals 32 and above, which the Go runtime leaves to the C library.
	script = `umask; ulimit -S -n
		for set in SigBlk SigIgn; do echo $set $((0x$(sed -n "s/^$set:\t//p" /proc/self/status) & 0x7fffffff)); done
		echo "$NOTIFY_SOCKET,$LC_ALL"`
)

// Whatever surroundings the program inherits, its processes have those of a login shell.
func TestProcessesHaveTheSurroundingsOfALoginShell(t *testing.T) {
	const wanted = "0022\n1024\nSigBlk 0\nSigIgn 0\n,\n"
	for name, prefix := range map[string]string{
		"ignored signals": `trap '' HUP INT QUIT USR1 CHLD PIPE TERM`,
		"umask":           `umask 077`,
		"limits":          `ulimit -S -n 64; ulimit -S -f 100; ulimit -S -s 100`,
		"variables":       `export NOTIFY_SOCKET=/run/x LC_ALL=de_DE.UTF-8`,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", "ulimit -S -n 1024; "+prefix+`; exec "$0" `+settledWord, "/proc/"+strings.TrimSpace(self(t))+"/exe")
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != wanted {
				t.Errorf("%v: %q, want %q", err, out, wanted)
			}
		})
	}
	t.Run("blocked signals", func(t *testing.T) {
		cmd := exec.Command("/usr/bin/env", "--block-signal=HUP,TERM,USR1", "/bin/sh", "-c", `ulimit -S -n 1024; exec "$0" `+settledWord, "/proc/"+self(t)+"/exe")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != wanted {
			t.Errorf("%v: %q, want %q", err, out, wanted)
		}
	})
}

func self(t *testing.T) string {
	t.Helper()
	pid, err := os.Readlink("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
