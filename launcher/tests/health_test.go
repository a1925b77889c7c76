package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"kurma.io/stager/tests/harness"
)

// healthOf is what `status --json` says of the health of a pod's app.
func healthOf(b *harness.Machine, pod, app string) (health, reason string, failures int) {
	b.T.Helper()
	var apps map[string]struct {
		Health, HealthReason string
		HealthFailures       int
	}
	if err := json.Unmarshal([]byte(b.Must("status", "--json", pod)), &apps); err != nil {
		b.T.Fatal(err)
	}
	return apps[app].Health, apps[app].HealthReason, apps[app].HealthFailures
}

// The health check of the options runs in the app as the app does; what it says is in status, ps, inspect and the events, and
// an app that is unhealthy is restarted where that is asked for.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	const script = `test "$A$(id -u)$(pwd)" = b1000/tmp && test -e /tmp/up || { echo begin; echo down >&2; exit 3; }`
	b.Must("run", "--detach", "--name", "p", "--entrypoint", "/bin/sh", "--env", "A=b", "--user", "1000:1000", "--workdir", "/tmp",
		"--tmpfs", "/tmp", "--health-cmd", script, "--health-interval", "1s", "--health-timeout", "1m", "--health-retries", "2",
		"kurma.io/stager/tests/busybox", "--", "-c", "exec sleep 1000")
	const app = "busybox"
	if health, _, _ := healthOf(b, "p", app); health != "starting" {
		t.Errorf("the app is %q at first", health)
	}
	if out := b.Must("ps"); !strings.Contains(out, "running, not healthy yet") {
		t.Errorf("ps: %s", out)
	}
	harness.Eventually(t, "the app is unhealthy", func() bool { health, _, _ := healthOf(b, "p", app); return health == "unhealthy" })
	if _, reason, failures := healthOf(b, "p", app); reason != "exit code 3: down" || failures < 2 {
		t.Errorf("unhealthy: %d failures, %q", failures, reason)
	}
	for command, want := range map[string]string{
		"ps": "running, unhealthy", "status p": "unhealthy, ", "ps --format {{.Health}}": "unhealthy\n", "inspect --json p": `"healthReason":"exit code 3: down"`,
		"events --stream=false": "app p/busybox unhealthy, exit code 3: down\n",
	} {
		harness.Eventually(t, command+" has "+want, func() bool { return strings.Contains(b.Must(strings.Fields(command)...), want) })
	}
	b.Must("exec", "p", "--", "touch", "/tmp/up")
	harness.Eventually(t, "the app is healthy", func() bool { health, _, _ := healthOf(b, "p", app); return health == "healthy" })
	b.Must("stop", "p")
	if health, _, _ := healthOf(b, "p", app); health != "" {
		t.Errorf("an app that has ended is %s", health)
	}
	checkEvents(b, events(b), "created p", "started p", "started p/busybox", "ready p", "unhealthy p/busybox exit code 3: down", "healthy p/busybox",
		"exited p/busybox 143 terminated", "exited p 143")

	b.Must("run", "--detach", "--name", "again", "--entrypoint", "/bin/sh", "--health-cmd", "test -e /up", "--health-interval", "1s",
		"--health-retries", "1", "--health-on-failure", "restart", "kurma.io/stager/tests/busybox", "--",
		"-c", "test ! -e /once || touch /up; touch /once; exec sleep 1000")
	harness.Eventually(t, "the restarted app is healthy", func() bool { health, _, _ := healthOf(b, "again", app); return health == "healthy" })
	if out := b.Must("ps"); !strings.Contains(out, "running, 1 restart, healthy") {
		t.Errorf("ps: %s", out)
	}
}
