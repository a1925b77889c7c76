package tests

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The test calls a call-in of the real stager by its name only.
func TestCallExecutesACallInByItsName(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("p", podOf(shell("a", "exec sleep 1000")))
	// The call-in's own document has several lines, the launcher's is the same in one.
	var line bytes.Buffer
	if err := json.Compact(&line, []byte(b.must("call", "p", "status"))); err != nil {
		t.Fatal(err)
	}
	if got, want := line.String(), b.must("status", "--json", "p"); got+"\n" != want {
		t.Errorf("call: %q, want %q", got, want)
	}
	if r := b.launcher("call", "p", "status", "--none"); r.code == 0 || r.stderr == "" {
		t.Errorf("the call-in's refusal is lost: %+v", r)
	}
	want := "launcher: the stager of pod \"p\" has no call-in \"none\"; it has attach, logs, run, status\n"
	if r := b.launcher("call", "p", "none"); r.code != 1 || r.stderr != want {
		t.Errorf("%+v, want %q", r, want)
	}
	p.stop()
}
