package daemon

import (
	"os"
	"strings"
	"testing"

	"kurma.io/stager/launcher/pods"
)

// Warnings are read from the form of the reference stager's log; other lines are none.
func TestWarningsOfTheStagerAreRead(t *testing.T) {
	for line, want := range map[string]StagerWarning{
		`time=2026-11-22T03:27:16.1Z level=WARN msg="no volume for mount point \"data\"" app=web`:                 {App: "web", Text: `no volume for mount point "data"`},
		`time=2026-11-22T03:27:16.1Z level=WARN msg=isolator app=web name=resource/x fate=ignored why="not here"`: {App: "web", Text: "isolator resource/x is ignored", Why: "not here"},
		`time=2026-11-22T03:27:16.1Z level=ERROR msg="end log" app=web error="disk full"`:                         {App: "web", Text: "end log", Why: "disk full"},
		`time=2026-11-22T03:27:16.1Z level=WARN msg="no service" why="not root"`:                                  {Text: "no service", Why: "not root"},
		`time=2026-11-22T03:27:16.1Z level=INFO msg="pod is running" apps=1`:                                      {},
		`stager: something else`:  {},
		`level=WARN`:              {},
		`level=WARN msg="cut off`: {Text: `"cut`},
		``:                        {},
	} {
		if got, ok := readWarning(line); got != want || ok != (want.Text != "") {
			t.Errorf("%s: %+v, %v, want %+v", line, got, ok, want)
		}
	}
}

// A line that an image has made long hides no other.
func TestALongWarningHidesNoOther(t *testing.T) {
	pod := &pods.Pod{Dir: t.TempDir()}
	long := strings.Repeat("x", 1<<20)
	if err := os.WriteFile(pod.LogPath(), []byte("level=WARN msg="+long+"\nlevel=WARN msg=last\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all := new(Daemon).Warnings(pod); len(all) != 2 || all[0].Text != long || all[1].Text != "last" {
		t.Errorf("%d warnings", len(all))
	}
}
