package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

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

// A signal ends a list of images while it waits for a file.
func TestASignalEndsAList(t *testing.T) {
	h := newHost(t)
	keys := filepath.Join(h.dir, "keys.asc")
	err := errors.Join(os.Remove(keys), unix.Mkfifo(keys, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.command("image", "list")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var gate *os.File
	surroundings.Eventually(t, "the launcher reads the keys", func() bool {
		gate, err = os.OpenFile(keys, os.O_WRONLY|unix.O_NONBLOCK, 0)
		return err == nil
	})
	defer gate.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	surroundings.Eventually(t, "the launcher has ended", func() bool { return len(ended) > 0 })
	_ = cmd.Process.Kill()
}
