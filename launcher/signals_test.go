package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A command under nohup is not ended by SIGHUP, and a shell's background job not by SIGINT.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	h := newPod(t)
	for _, args := range []string{"run --rm --json --name q example.com/one", "exec p -- signal"} {
		launcher := h.command(strings.Fields(args)...)
		cmd := exec.Command("sh", append([]string{"-c", `trap '' HUP INT; exec "$@"`, "sh"}, launcher.Args...)...)
		cmd.Env = launcher.Env
		out := must(cmd.StdoutPipe())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		status := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)))
		mask := regexp.MustCompile(`SigIgn:\s*([0-9a-f]+)`).FindSubmatch(status)
		ignored := must(strconv.ParseUint(string(mask[1]), 16, 64))
		for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT} {
			if ignored&(1<<(sig-1)) == 0 {
				t.Errorf("%s: %s is not ignored", args, unix.SignalName(sig))
			}
		}
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: after SIGTERM: %v", args, err)
		}
	}
}
