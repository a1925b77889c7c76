package daemon

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The command of an app is as long as the app wants: a part of it is read.
func TestALongCommandIsCut(t *testing.T) {
	const begun = "sh\000-c\000read x\000"
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
			cmd := exec.Command("sh", append([]string{"-c", "read x"}, tt.args...)...)
			in, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			p, err := readProcess(cmd.Process.Pid)
			_ = in.Close()
			_ = cmd.Wait() // read fails at the end of its file
			if diff := cmp.Diff(append([]string{"sh", "-c", "read x"}, tt.want...), p.Command); err != nil || diff != "" {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
}
