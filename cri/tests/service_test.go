package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/pods"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Systemd makes the socket and keeps it while the server is started again: kubelet's calls wait meanwhile. No container
// gets the socket or learns of it.
func TestServerTakesTheSocketOfSystemd(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	p.kill()
	if err := os.Remove(p.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", p.path("cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	server := func() *exec.Cmd {
		own := p.command()
		cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=kurma-cri.socket exec "$@"`, "systemd"}, own.Args...)...)
		cmd.ExtraFiles = []*os.File{socket}
		return cmd
	}
	p.startAs(server())
	config := p.script("trap 'exit 0' TERM; env; ls -l /proc/self/fd; while :; do sleep 0.1; done")
	id := p.startNew(config)
	p.kill()
	connection, err := net.Dial("unix", p.path("cri.sock"))
	if err != nil {
		t.Fatalf("without a server the socket refuses: %v", err)
	}
	_ = connection.Close()
	p.startAs(server())
	if s := p.status(id); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after the restart: %v", s)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.stagerOf(id)))
	if err != nil || strings.Contains(string(environ), "LISTEN_FDS") {
		t.Errorf("the stager has the environment %q, %v", environ, err)
	}
	if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60}); err != nil {
		t.Error(err)
	}
	if out := p.output(config); strings.Contains(out, "LISTEN_") || strings.Contains(out, "socket:") {
		t.Errorf("the container has:\n%s", out)
	}
}

// stagerOf returns the process of a container's stager.
func (n *node) stagerOf(id string) int {
	n.Helper()
	var state pods.State
	if err := jsonfile.Read(n.path("state/pods/"+n.podOf(id)+"/state.json"), &state); err != nil {
		n.Fatal(err)
	}
	return state.Stager.PID
}

// Sockets that the server cannot use are refused.
func TestOtherSocketsOfSystemdAreRefused(t *testing.T) {
	n := newNode(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	own := n.command()
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"`, "systemd"}, own.Args...)...)
	cmd.ExtraFiles = []*os.File{socket}
	text, err := cmd.CombinedOutput()
	if want := "kurma-cri: take socket of systemd: 1 sockets are passed, want one Unix socket (ListenStream=)\n"; err == nil || string(text) != want {
		t.Errorf("%v, %q, want %q", err, text, want)
	}
}
