package program_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/pid1/goinit"
	"kurma.io/stager/program"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/surroundings"
)

// playVariable says that the test's program plays a stager.
const playVariable = "PROGRAM_TEST_PLAY"

func TestMain(m *testing.M) {
	if os.Getenv(playVariable) != "" {
		os.Exit(program.Main(product()))
	}
	surroundings.Settle()
	os.Exit(m.Run())
}

// product is a stager whose start fails, with a call-in, a standard one in another's place, and a role of its own.
func product() program.Options {
	say := func(what string) callins.CallIn {
		return func(_ context.Context, s callins.Streams, args []string) error {
			_, err := fmt.Fprintln(s.Stdout, what, args)
			return err
		}
	}
	return program.Options{
		Version: "1.2.3",
		Begin:   goinit.Begin(func(*goinit.Init, *slog.Logger) spec.Runtime { return nil }),
		CallIns: map[string]callins.CallIn{"hello": say("hello"), names.Status: say("own status")},
		Roles: map[string]func(context.Context, []string) error{
			"worker": func(_ context.Context, args []string) error {
				return &callins.ExitError{Code: 5, Err: fmt.Errorf("worker %q", args)}
			},
		},
	}
}

// A name that the program does not know is an error, whatever the image has linked to it: it never starts a pod.
func TestTheNameSelectsThePart(t *testing.T) {
	for _, test := range []struct {
		call string
		code int
		want string
	}{
		{"/opt/stager/hello a b", 0, "hello [a b]\n"},
		{"/stager hello a", 0, "hello [a]\n"},
		{"/opt/stager/status", 0, "own status []\n"},
		{"/stager --version", 0, names.Program + " 1.2.3\n"},
		{"worker 1", 5, "worker [\"1\"]\n"},
		{"/stager worker 1", 1, "unknown call-in \"worker\", want one of attach, hello, logs, restart, run, status\n"},
		{"/opt/stager/other", 1, "called as \"/opt/stager/other\", want stager or a call-in: attach, hello, logs, restart, run, status\n"},
		{"/opt/stager/other app", 1, "unknown call-in \"app\""},
		{"/opt/stager/logs", 1, "logs: "},
	} {
		var output bytes.Buffer
		cmd := &exec.Cmd{
			Path: "/proc/self/exe", Args: strings.Fields(strings.ReplaceAll(test.call, "/stager ", "/"+names.Program+" ")),
			Env: []string{playVariable + "=1"}, Stdout: &output, Stderr: &output,
		}
		_ = cmd.Run() // the state has the outcome
		if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(output.String(), test.want) {
			t.Errorf("%s: exit code %d, want %d:\n%s", test.call, code, test.code, &output)
		}
	}
}

// The image of a stager with the standard call-ins has a link for each.
func TestTheStandardCallInsAreThoseOfTheImage(t *testing.T) {
	if got := slices.Sorted(maps.Keys(callins.CallIns())); !slices.Equal(got, names.CallIns()) {
		t.Errorf("the program has the call-ins %q, the image links to %q", got, names.CallIns())
	}
}
