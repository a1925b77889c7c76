package tests

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
)

// A client that goes, as kubectl does by Ctrl-C, leaves neither its command nor anything in the server.
func TestClientsThatGoLeaveNothing(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	commands := func() string {
		r, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"ps"}})
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Stdout)
	}
	descriptors := func() int {
		all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.server.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	commands()
	before := descriptors()
	for _, tty := range []bool{false, true} {
		r, err := p.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo ready; sleep 777"}, Stdout: true, Stderr: !tty, Tty: tty})
		if err != nil {
			t.Fatal(err)
		}
		kinds := []string{"error", "stdout", "stderr"}
		if tty {
			kinds[2] = "resize"
		}
		expect(t, r.Url, "ready", kinds)
	}
	r, err := p.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, r.Url, "", []string{"error", "stdout", "stderr"})
	surroundings.Eventually(t, "the commands end", func() bool { return !strings.Contains(commands(), "sleep 777") })
	surroundings.Eventually(t, "the server closes its files", func() bool { return descriptors() <= before })
}

// expect opens streams, reads what is expected from the second, and closes the connection.
func expect(t *testing.T, url, want string, kinds []string) {
	t.Helper()
	c := dial(t, url, execProtocol)
	var streams []httpstream.Stream
	for _, kind := range kinds {
		streams = append(streams, c.open(kind))
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(streams[1], got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
