package daemon

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The command of an app is as long as the app wants: a part of it is read.
func TestALongCommandIsCut(t *testing.T) {
	const script = "echo; read x"
	const begun = "sh\000-c\000" + script + "\000"
	fits := strings.Repeat("x", maxCommand-len(begun)-1)
	for _, tt := range []struct {
		name       string
		args, want []string
	}{
		{"short", []string{"", "one", ""}, []string{"", "one", ""}},
		{"as long as it may be", []string{fits}, []string{fits}},
		{"cut in a word", []string{strings.Repeat("é", maxCommand)}, []string{strings.Repeat("é", (maxCommand-len(begun))/2) + "…"}},
		{"cut after a word", []string{fits, "more"}, []string{fits + "…"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("sh", append([]string{"-c", script}, tt.args...)...)
			in, errIn := cmd.StdinPipe()
			out, errOut := cmd.StdoutPipe()
			if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			// Start returns when execve(2) closes descriptors, which is before the kernel sets the command.
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			p, err := readProcess(cmd.Process.Pid)
			_ = in.Close()
			_ = cmd.Wait() // read fails at the end of its file
			if diff := cmp.Diff(append([]string{"sh", "-c", script}, tt.want...), p.Command); err != nil || diff != "" {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
}
