package tests

import "testing"

// The test calls a call-in of the real stager by its name only.
func TestCallExecutesACallInByItsName(t *testing.T) {
	t.Parallel()
	b := newMachine(t)
	p := b.up("p", podOf(shell("a", "exec sleep 1000")))
	if got, want := b.must("call", "p", "status"), b.must("status", "--json", "p"); got != want {
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
