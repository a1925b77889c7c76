package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// node is a machine with a server, as kubelet sees it.
type node struct {
	*testing.T
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient

	dir    string
	cgroup string // kubelet's
	config string
	server *exec.Cmd
	conn   *grpc.ClientConn
	killed bool // once, with kill
}

// newNode starts a server with a bridge network, and checks at the test's end that it leaves nothing.
func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{T: t, dir: t.TempDir()}
	n.cgroup = "kurma-cri-test-" + filepath.Base(filepath.Dir(n.dir))
	n.writeConfig(map[string]any{})
	n.writeNetwork("bridge")
	t.Cleanup(n.end)
	n.start()
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// writeConfig writes the server's configuration, with more keys.
func (n *node) writeConfig(more map[string]any) {
	n.Helper()
	stager := environment(n.T, "STAGER_ACI")
	config := map[string]any{
		"socket": n.path("cri.sock"), "state": n.path("state"), "stagerImage": "file://" + stager,
		"trustedKeys": []string{stager + ".pub"}, "trustDirectory": n.path("trust"), "cgroupDriver": "cgroupfs",
		"networkConfigDirectory": n.path("net.d"), "networkPluginDirectories": []string{"/usr/lib/cni"},
		"cdiSpecDirectories": []string{n.path("cdi")},
	}
	for key, value := range more {
		config[key] = value
	}
	text, err := json.Marshal(config)
	if err != nil {
		n.Fatal(err)
	}
	n.config = n.path("config.json")
	n.write(n.config, string(text))
}

// writeNetwork writes CNI's configuration of a bridge of that name.
func (n *node) writeNetwork(bridge string) {
	n.Helper()
	n.write(n.path("net.d/10-bridge.conflist"), fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "test", "plugins": [
		{"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": false,
		 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.0.0/16"}]], "dataDir": %q}}]}`, bridge, n.path("ipam")))
}

func (n *node) write(path, text string) {
	n.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		n.Fatal(err)
	}
}

func environment(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run make test-cri", name)
	}
	return value
}

// start starts the server and connects to it.
func (n *node) start() {
	n.Helper()
	n.startAs(n.command())
}

// command returns the program with the node's configuration and arguments.
func (n *node) command(args ...string) *exec.Cmd {
	n.Helper()
	program := filepath.Join(environment(n.T, "STAGER_BIN"), "kurma-cri")
	return exec.Command(program, append([]string{"--config", n.config}, args...)...)
}

// startAs starts a server by a command and connects to it.
func (n *node) startAs(cmd *exec.Cmd) {
	n.Helper()
	n.server = cmd
	log, err := os.OpenFile(n.path("server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.Fatal(err)
	}
	defer log.Close()
	n.server.Stdout, n.server.Stderr = log, log
	if err := surroundings.Start(n.server); err != nil {
		n.Fatal(err)
	}
	n.conn, err = grpc.NewClient("unix://"+n.path("cri.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20))) // as kubelet
	if err != nil {
		n.Fatal(err)
	}
	n.RuntimeServiceClient, n.ImageServiceClient = runtimeapi.NewRuntimeServiceClient(n.conn), runtimeapi.NewImageServiceClient(n.conn)
	surroundings.Eventually(n.T, "the server answers", func() bool {
		_, err := n.Version(context.Background(), &runtimeapi.VersionRequest{})
		return err == nil
	})
}

// kill kills the server.
func (n *node) kill() {
	n.Helper()
	n.killed = true
	_ = n.conn.Close()
	if err := n.server.Process.Kill(); err != nil {
		n.Fatal(err)
	}
	_ = n.server.Wait()
}

// end removes all sandboxes, stops the server, and checks that nothing is left.
func (n *node) end() {
	if n.Failed() {
		log, _ := os.ReadFile(n.path("server.log"))
		n.Logf("the server says:\n%s", log)
	}
	ctx := context.Background()
	listed, err := n.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		n.Errorf("list sandboxes: %v", err)
	}
	for _, s := range listed.GetItems() {
		if _, err := n.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			n.Errorf("remove sandbox: %v", err)
		}
	}
	n.noZombieIsLeft()
	if n.killed {
		surroundings.Eventually(n.T, "leftovers are removed", func() bool { return len(n.left()) == 0 })
	}
	_ = n.server.Process.Signal(unix.SIGTERM)
	if err := n.server.Wait(); err != nil {
		n.Errorf("the server ended with %v", err)
	}
	n.nothingIsLeft()
}

// noZombieIsLeft checks that the server has waited for the processes that it has started, such as the stagers.
func (n *node) noZombieIsLeft() {
	surroundings.Eventually(n.T, "the server has no process left below it", func() bool {
		files, err := filepath.Glob("/proc/[0-9]*/stat")
		for _, file := range files {
			text, err := os.ReadFile(file)
			_, state, _ := strings.Cut(string(text), ") ") // proc_pid_stat(5): state and parent follow the name
			if fields := strings.Fields(state); err == nil && fields[1] == fmt.Sprint(n.server.Process.Pid) {
				return false
			}
		}
		return err == nil
	})
}

// left returns what is in the server's folders of pods, sandboxes and containers.
func (n *node) left() (paths []string) {
	for _, kind := range []string{"pods", "sandboxes", "containers", "mounts"} {
		entries, err := os.ReadDir(n.path("state/" + kind))
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), ".") {
				paths = append(paths, kind+"/"+e.Name())
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.Error(err)
		}
	}
	return paths
}

func (n *node) nothingIsLeft() {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), n.dir) {
		n.Errorf("mounts are left (%v):\n%s", err, mounts)
	}
	for _, path := range n.left() {
		n.Errorf("%s is left", path)
	}
	group, err := cgroups.Open(n.cgroup)
	if err != nil {
		n.Error(err)
	}
	for _, h := range group.Hierarchies {
		if _, err := os.Stat(group.Dir(h)); err == nil {
			n.Errorf("cgroup %s is left", group.Dir(h))
		}
	}
}

func (n *node) rename(from, to string) {
	n.Helper()
	if err := os.Rename(from, to); err != nil {
		n.Fatal(err)
	}
}
