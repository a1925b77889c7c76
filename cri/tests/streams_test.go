package tests

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// client is a client of one exec, attach or port-forward.
type client struct {
	*testing.T
	httpstream.Connection
}

// dial connects to the address of streams as kubectl does.
func dial(t *testing.T, url, protocol string) *client {
	t.Helper()
	transport, err := spdy.NewRoundTripper(nil)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodPost, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Stream-Protocol-Version", protocol)
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	connection, err := transport.NewConnection(response)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &client{t, connection}
}

const execProtocol = "v4.channel.k8s.io"

// open opens a stream.
func (c *client) open(kind string, more ...string) httpstream.Stream {
	c.Helper()
	header := http.Header{}
	header.Set("streamType", kind)
	for i := 0; i < len(more); i += 2 {
		header.Set(more[i], more[i+1])
	}
	stream, err := c.CreateStream(header)
	if err != nil {
		c.Fatal(err)
	}
	return stream
}

func (c *client) read(stream io.Reader) string {
	c.Helper()
	text, err := io.ReadAll(stream)
	if err != nil {
		c.Error(err)
	}
	return string(text)
}

// A probe has the container's environment, however large that is.
func TestExecSyncWithALargeEnvironment(t *testing.T) {
	p := newPod(t)
	config := p.script("sleep 1000")
	for n := range 25000 {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: fmt.Sprintf("SVC_%d_PORT", n), Value: []byte("tcp://10.96.0.1:80?a&b<c>d")})
	}
	id := p.startNew(config)
	show := []string{"sh", "-c", "echo $(env | grep -c ^SVC_) $SVC_7_PORT"}
	r, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: show})
	if err != nil || string(r.Stdout) != "25000 tcp://10.96.0.1:80?a&b<c>d\n" {
		t.Errorf("%.200v, %v", r, err)
	}
}

func TestExecSyncReturnsOutputAndExit(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	r, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo out; echo err >&2; echo $FROM; exit 3"}})
	if err != nil || string(r.Stdout) != "out\nimage\n" || string(r.Stderr) != "err\n" || r.ExitCode != 3 {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "1000"}, Timeout: 1}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a command that takes too long: %v", err)
	}
	if _, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no command: %v", err)
	}
	large, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"dd", "if=/dev/zero", "bs=1048576", "count=20"}})
	if err != nil || len(large.GetStdout()) == 0 || len(large.GetStdout()) > 16<<20 {
		t.Errorf("large output: %d bytes, %v", len(large.GetStdout()), err)
	}
}

// That the stager could not run a command to its end is an error, and no exit status of the command.
func TestExecSyncInAContainerThatIsKilled(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	ended := make(chan string, 1)
	go func() {
		r, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo >/dev/shm/runs; sleep 1000"}})
		ended <- fmt.Sprint(r, err)
	}()
	surroundings.Eventually(t, "the command runs", func() bool {
		_, err := os.Stat(p.path("state/sandboxes/" + p.id + "/shm/runs"))
		return err == nil
	})
	if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; !strings.Contains(got, "run command: ") {
		t.Error(got)
	}
}

func TestExecCarriesStreams(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	r, err := p.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "cat; echo err >&2; exit 5"}, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, r.Url, execProtocol)
	failure, in, out, errOut := c.open("error"), c.open("stdin"), c.open("stdout"), c.open("stderr")
	if _, err := io.WriteString(in, "typed\n"); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if text := c.read(out); text != "typed\n" {
		t.Errorf("stdout %q", text)
	}
	if text := c.read(errOut); text != "err\n" {
		t.Errorf("stderr %q", text)
	}
	if text := c.read(failure); !strings.Contains(text, `"message":"5"`) {
		t.Errorf("status %s", text)
	}
}

// That the stager could not run a command to its end is an error with words, and no exit status of the command.
func TestExecInAContainerThatIsKilled(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	for _, tty := range []bool{false, true} {
		id := p.startNew(p.script("sleep 1000"))
		r, err := p.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", "echo runs; sleep 1000"}, Stdout: true, Stderr: !tty, Tty: tty})
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, r.Url, execProtocol)
		failure, out := c.open("error"), c.open("stdout")
		c.open(map[bool]string{false: "stderr", true: "resize"}[tty])
		if _, err := io.ReadFull(out, make([]byte, len("runs"))); err != nil {
			t.Fatal(err)
		}
		if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if text := c.read(failure); !strings.Contains(text, "run command: ") || strings.Contains(text, "ExitCode") {
			t.Errorf("terminal %v: %s", tty, text)
		}
	}
}

func TestExecHasATerminalThatIsResized(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	id := p.startNew(p.script("sleep 1000"))
	script := "echo ready; while [ \"$(stty size)\" != '33 77' ]; do sleep 0.05; done; tty; stty size"
	r, err := p.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}, Stdin: true, Stdout: true, Tty: true})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, r.Url, execProtocol)
	failure, _, out, sizes := c.open("error"), c.open("stdin"), c.open("stdout"), c.open("resize")
	ready := make([]byte, len("ready\r\n"))
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatalf("%v, status %s", err, c.read(failure))
	}
	if _, err := io.WriteString(sizes, `{"Width":77,"Height":33}`); err != nil {
		t.Fatal(err)
	}
	if text := c.read(out); !strings.HasPrefix(text, "/dev/pts/") || !strings.HasSuffix(text, "33 77\r\n") {
		t.Errorf("%q", text)
	}
	if text := c.read(failure); !strings.Contains(text, "Success") {
		t.Errorf("status %s", text)
	}
}

func TestAttachCarriesTheAppsStreams(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.script("read line; echo got $line; read line; exit 4")
	config.Stdin = true
	id := p.startNew(config)
	r, err := p.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, r.Url, execProtocol)
	c.open("error")
	in, out, _ := c.open("stdin"), c.open("stdout"), c.open("stderr")
	if _, err := io.WriteString(in, "one\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("got one\n"))
	if _, err := io.ReadFull(out, got); err != nil || string(got) != "got one\n" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := io.WriteString(in, "two\n"); err != nil {
		t.Fatal(err)
	}
	if s := p.awaitExit(id); s.ExitCode != 4 {
		t.Errorf("%v", s)
	}
}

func TestPortsAreForwarded(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.script("echo ready; nc -l -p 7777 -e cat")
	id := p.startNew(config)
	surroundings.Eventually(t, "the server listens", func() bool {
		r, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"grep", ":1E61 .* 0A", "/proc/net/tcp", "/proc/net/tcp6"}})
		return err == nil && r.ExitCode == 0
	})
	r, err := p.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{7777}})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, r.Url, "portforward.k8s.io")
	failure := c.open("error", "port", "7777", "requestID", "0")
	data := c.open("data", "port", "7777", "requestID", "0")
	if _, err := fmt.Fprint(data, "hello"); err != nil {
		t.Fatal(err)
	}
	_ = data.Close()
	if text := c.read(data); text != "hello" {
		t.Errorf("%q", text)
	}
	if text := c.read(failure); text != "" {
		t.Errorf("error %q", text)
	}
}

func TestStatsAndUpdatesOfLimits(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.script("sleep 1000")
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 64 << 20, CpuQuota: 50000, CpuPeriod: 100000, CpuShares: 512, CpusetCpus: "0", OomScoreAdj: 500,
	}}
	id := p.startNew(config)
	stats, err := p.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	s := stats.Stats
	if s.Attributes.Id != id || s.Cpu.UsageCoreNanoSeconds.GetValue() == 0 || s.Memory.WorkingSetBytes.GetValue() == 0 || s.Memory.AvailableBytes.GetValue() == 0 {
		t.Errorf("%v", s)
	}
	all, err := p.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{PodSandboxId: p.id}})
	if err != nil || len(all.Stats) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	pods, err := p.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil || len(pods.Stats) != 1 || len(pods.Stats[0].Linux.Containers) != 1 || pods.Stats[0].Linux.Network.DefaultInterface.GetName() != "eth0" {
		t.Errorf("%v, %v", pods, err)
	}
	see := func(file string) string {
		t.Helper()
		r, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "cat " + file}})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(r.Stdout))
	}
	limits := strings.Join([]string{sharesFile(""), cgroupFile("", "cpu", "cpu.cfs_quota_us", "cpu.max"), memoryFile("")}, " ")
	text := see(cpusFile("") + " " + limits + " /proc/self/oom_score_adj")
	if text != version("0\n512\n50000\n67108864\n500", "0\n59\n50000 100000\n67108864\n500") {
		t.Errorf("limits %q", text)
	}
	if _, err := p.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 32 << 20, CpuQuota: 20000, CpuPeriod: 100000, CpuShares: 100,
	}}); err != nil {
		t.Fatal(err)
	}
	if text := see(limits); text != version("100\n20000\n33554432", "17\n20000 100000\n33554432") {
		t.Errorf("limits after the update %q", text)
	}
	if r := p.status(id).Resources.Linux; r.MemoryLimitInBytes != 32<<20 || r.CpusetCpus != "0" {
		t.Errorf("resources of the status %v", r)
	}
}

func TestEventsTellOfContainers(t *testing.T) {
	p := newPod(t)
	ctx, cancel := context.WithTimeout(t.Context(), surroundings.Patience)
	defer cancel()
	events, err := p.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// The first event may be of a container that was made before the server had the subscriber.
	received := make(chan *runtimeapi.ContainerEventResponse)
	go func() {
		defer close(received)
		for {
			e, err := events.Recv()
			if err != nil {
				return
			}
			received <- e
		}
	}()
	var first *runtimeapi.ContainerEventResponse
	surroundings.Eventually(t, "an event comes", func() bool {
		p.run(p.sandboxConfig())
		select {
		case first = <-received:
			return true
		default:
			return false
		}
	})
	if first.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT || first.GetPodSandboxStatus().GetId() != first.GetContainerId() {
		t.Errorf("%v", first)
	}
	id := p.startNew(p.script("exit 2"))
	var kinds []runtimeapi.ContainerEventType
	for e := range received {
		if e.ContainerId != id {
			continue
		}
		if kinds = append(kinds, e.ContainerEventType); e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			break
		}
	}
	if len(kinds) != 3 {
		t.Errorf("events %v", kinds)
	}
}

func TestLogsAreReopened(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	config := p.script("echo one; read line; echo two; read line")
	config.Stdin = true
	id := p.startNew(config)
	surroundings.Eventually(t, "the first line is there", func() bool { return p.output(config) == "one\n" })
	path := p.status(id).LogPath
	p.rename(path, path+".1")
	if _, err := p.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	r, err := p.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdin: true, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, r.Url, execProtocol)
	c.open("error")
	in, _ := c.open("stdin"), c.open("stdout")
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	surroundings.Eventually(t, "the second line is in the new file", func() bool { return p.output(config) == "two\n" })
	if _, err := p.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: "unknown"}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown container: %v", err)
	}
}
