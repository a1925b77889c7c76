package tests

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/hostile"
)

// probeProc prints what it can do with files of the supervisor in /proc.
func probeProc(out io.Writer) error {
	for _, line := range hostile.Proc(hostile.Threads(1)...) {
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// tracer is an app with CAP_SYS_PTRACE, as commands in it.
func tracer() harness.AppDoc {
	app := suite.Shell("tracer", "exec sleep 1000")
	set := append(spec.DefaultCapabilities(), "CAP_SYS_PTRACE") // CAP_KILL is among the others
	app.App.Isolators = []any{harness.Isolator("os/linux/capabilities-retain-set", map[string]any{"set": set})}
	return app
}

// An app reads and changes nothing in the files of init's thread in /proc but what is harmless, user 0 and others. This
// test fails for a file that a new kernel has.
func TestInitsFilesInProcAreHarmless(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	hiding := suite.Shell("hiding", "exec sleep 1000").Annotated(names.HideProcessesAnnotation, "true")
	p := b.Up("pod", harness.PodOf(suite.Shell("a", "exec sleep 1000"), tracer(), hiding).HostVolume("probe", dir, "/probe"))
	for _, user := range []string{"0", "1000"} {
		for _, app := range []string{"a", "tracer"} {
			out, code := run(p, app, settings{Exec: []string{"/probe/probe", "proc"}, User: user, Group: user})
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if code != 0 || !slices.Contains(lines, "read stat") {
				t.Errorf("user %s of %s: exit status %d: %s", user, app, code, out)
			}
			if harmful := hostile.Harmful(lines, user == "0"); len(harmful) > 0 {
				t.Errorf("user %s of %s can do with files of init: %q", user, app, harmful)
			}
		}
		if out, code := run(p, "hiding", settings{Exec: []string{"/probe/probe", "proc"}, User: user, Group: user}); code != 0 || out != "" {
			t.Errorf("user %s in an app that hides processes: exit status %d: %s", user, code, out)
		}
	}
	p.Stop()
}
