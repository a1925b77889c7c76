package tests

import (
	"context"
	"math"
	"os"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An app has its grace period although kubelet, or the server, is started again while the app ends.
func TestOnlyTheGracePeriodKills(t *testing.T) {
	p := newPod(t)
	config := p.script("trap 'echo asked' TERM; echo ready; while [ ! -e /dev/shm/end ]; do sleep 0.1; done; exit 7")
	id := p.startNew(config)
	await := func(want string) {
		t.Helper()
		if !surroundings.Eventually(t, "the app writes "+want, func() bool { return p.output(config) == want }) {
			t.FailNow()
		}
	}
	stop := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: math.MaxInt64})
			ended <- err
		}()
		return ended
	}
	await("ready\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := stop(ctx)
	await("ready\nasked\n")
	if r, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"echo", "here"}}); err != nil || string(r.Stdout) != "here\n" {
		t.Errorf("in the grace period: %v, %v", r, err)
	}
	if _, container := p.metrics(); container["container_processes"] == 0 {
		t.Error("in the grace period the container has no metrics")
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the call was not cancelled")
	}
	ended = stop(t.Context())
	await("ready\nasked\nasked\n") // the second call has waited for the first
	if err := p.server.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the call outlived its server")
	}
	_ = p.conn.Close()
	p.start()
	ended = stop(t.Context())
	await("ready\nasked\nasked\nasked\n")
	if err := os.WriteFile(p.path("state/sandboxes/"+p.id+"/shm/end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s := p.status(id); s.ExitCode != 7 {
		t.Errorf("%v", s)
	}
}
