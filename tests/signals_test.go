package tests

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/hostile"
)

// probeSignals sends the pod's supervisor every signal in every way, and prints how many calls have succeeded.
func probeSignals(out io.Writer) error {
	sent, err := hostile.Signal(1)
	if err == nil {
		_, err = fmt.Fprintln(out, sent)
	}
	return err
}

// No app ends the pod by a signal, whatever its number, its data, the thread that it is sent to and the system call
// that sends it. The pod goes on: the apps are the same, and the supervisor answers and starts commands.
func TestNoSignalEndsThePod(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	p := b.Up("pod", harness.PodOf(suite.Shell("a", "exec sleep 1000"), suite.Shell("neighbour", "exec sleep 1000"), tracer()).HostVolume("probe", dir, "/probe"))
	before := p.Status()
	for _, app := range []string{"a", "tracer", "a"} {
		sent := strings.TrimSpace(succeeds(p, app, "/probe/probe signals"))
		if n, err := strconv.Atoi(sent); err != nil || n == 0 {
			t.Errorf("%q signals were sent, so this test shows nothing", sent)
		}
	}
	after := p.Status()
	for name := range before {
		if after[name] != before[name] {
			t.Errorf("%s is %+v after the signals, and was %+v", name, after[name], before[name])
		}
	}
	succeeds(p, "neighbour", "true")
	p.Stop()
}
