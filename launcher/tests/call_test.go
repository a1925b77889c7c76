package tests

import (
	"bytes"
	"encoding/json"
	"testing"

	"kurma.io/stager/tests/harness"
)

// The test calls a call-in of the real stager by its name only.
func TestCallExecutesACallInByItsName(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	p := b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	// The call-in's own document has several lines, the launcher's is the same in one.
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(b.Must("call", "p", "status"))); err != nil {
		t.Fatal(err)
	}
	if got, want := line.String(), b.Must("status", "--json", "p"); got+"\n" != want {
		t.Errorf("call: %q, want %q", got, want)
	}
	if r := b.Launcher("call", "p", "status", "--none"); r.Code == 0 || r.Stderr == "" {
		t.Errorf("the call-in's refusal is lost: %+v", r)
	}
	want := "launcher: the stager of pod \"p\" has no call-in \"none\"; known call-ins: attach, logs, restart, run, status\n"
	if r := b.Launcher("call", "p", "none"); r.Code != 1 || r.Stderr != want {
		t.Errorf("%+v, want %q", r, want)
	}
	p.Stop()
}
