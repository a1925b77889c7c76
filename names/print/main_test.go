package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"kurma.io/stager/names"
)

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(&out, args); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestOneNameIsPrinted(t *testing.T) {
	if got := printed(t, "PROGRAM"); got != names.Program+"\n" {
		t.Errorf("%q", got)
	}
}

func TestAllNamesAreAssignmentsOfAShell(t *testing.T) {
	out, err := exec.Command("sh", "-euc", printed(t)+`echo "$PROGRAM $IMAGE $EXEC $RUN_DIR $LOG_DIR $CONTROL_SOCKET $CALL_IN_DIR"`).Output()
	want := []string{names.Program, names.Image, names.Exec, names.RunDir, names.LogDir, names.ControlSocket, names.CallInDir}
	if got := strings.TrimSpace(string(out)); err != nil || got != strings.Join(want, " ") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestUnknownNamesAreRefused(t *testing.T) {
	for _, args := range [][]string{{"NOBODY"}, {""}, {"PROGRAM", "IMAGE"}} {
		var out bytes.Buffer
		if err := run(&out, args); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}
