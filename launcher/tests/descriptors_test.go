package tests

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/harness"
)

// The test starts the launcher with open descriptors: neither a pod nor a
// call-in inherits them.
func TestDescriptorsOfTheLaunchersCallerAreNotInherited(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	foreign := []*os.File{write, write, write, write, write, write, write} // 3 to 9
	path := b.Write("pod.json", harness.PodOf(suite.Shell("a", "ls -l /proc/self/fd; exec sleep 1000")))
	cmd := b.Command("run", "--json", "--detach", "--name", "p", path)
	cmd.ExtraFiles = foreign
	r := harness.Finish(t, cmd)
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	p := b.Adopt(r.Stdout)

	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", write.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	cmd = b.Command("exec", "p", "--", "ls", "-l", "/proc/self/fd")
	cmd.ExtraFiles = foreign
	if r := harness.Finish(t, cmd); r.Code != 0 || strings.Contains(r.Stdout, name) {
		t.Errorf("a command of exec has %s: %+v", name, r)
	}
	if log := p.Logs("a"); strings.Contains(log, name) {
		t.Errorf("an app has %s:\n%s", name, log)
	}

	_ = write.Close()
	if err := read.SetReadDeadline(time.Now().Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, read); err != nil {
		t.Errorf("a process of the pod has the pipe open: %v", err)
	}
	p.Stop()
}
