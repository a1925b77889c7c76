package main

import (
	"bytes"
	"os"
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

// A fork that renames the stager writes the header again.
func TestHeaderIsCurrent(t *testing.T) {
	text, err := os.ReadFile("../../internal/c/names.h")
	if err != nil || string(text) != printed(t, "--c") {
		t.Errorf("internal/c/names.h is not that of names.go, %v: run go generate ./names/...", err)
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
