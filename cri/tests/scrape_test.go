package tests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/exposition"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// scrape returns the samples that the server has at an address, by their names with labels. It checks their format.
func (n *node) scrape(network, address string) map[string]float64 {
	n.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	response, err := client.Get("http://server/metrics")
	if err != nil {
		n.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		n.Fatalf("%s, %v\n%s", response.Status, err, text)
	}
	samples, err := exposition.Parse(string(text))
	if err != nil {
		n.Fatal(err)
	}
	return samples
}

// The server counts its calls, their errors and durations, pulls, pods, containers and restarts.
func TestTheServerHasMetricsOfItself(t *testing.T) {
	n := newNode(t)
	n.kill()
	n.writeConfig(map[string]any{"metricsAddress": "unix://" + n.path("metrics.sock")})
	n.start()
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/box:1", busybox(t, nil))
	p := n.run(n.sandboxConfig())
	for range 2 {
		p.image = n.pull(registry + "/box:1")
	}
	if _, err := n.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: registry + "/none:1"}}); err == nil {
		t.Error("an image that is missing is pulled")
	}
	for attempt := range uint32(3) {
		config := p.script("exit 1")
		config.Metadata = &runtimeapi.ContainerMetadata{Name: "again", Attempt: attempt}
		p.awaitExit(p.startNew(config))
	}
	p.startNew(p.script("sleep 1000"))
	if _, err := p.createContainer(p.script("true")); err != nil {
		t.Fatal(err)
	}
	got := n.scrape("unix", n.path("metrics.sock"))
	for name, want := range map[string]float64{
		`kurma_cri_calls_total{method="StartContainer",code="OK"}`:             4,
		`kurma_cri_calls_total{method="PullImage",code="OK"}`:                  2,
		`kurma_cri_calls_total{method="PullImage",code="Unknown"}`:             1,
		`kurma_cri_call_duration_seconds_count{method="PullImage"}`:            3,
		`kurma_cri_call_duration_seconds_bucket{method="PullImage",le="+Inf"}`: 3,
		`kurma_cri_pulls_total{result="pulled"}`:                               1,
		`kurma_cri_pulls_total{result="unchanged"}`:                            1,
		`kurma_cri_pulls_total{result="failed"}`:                               1,
		`kurma_cri_container_restarts_total`:                                   2,
		`kurma_cri_pods{state="ready"}`:                                        1,
		`kurma_cri_pods{state="notready"}`:                                     0,
		`kurma_cri_containers{state="created"}`:                                1,
		`kurma_cri_containers{state="running"}`:                                1,
		`kurma_cri_containers{state="exited"}`:                                 3,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v, %v, want %v", name, value, ok, want)
		}
	}
	if sum := got[`kurma_cri_call_duration_seconds_sum{method="StartContainer"}`]; sum <= 0 {
		t.Errorf("starts took %v seconds", sum)
	}
	last := 0.0
	for _, bound := range []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "120", "+Inf"} {
		value, ok := got[fmt.Sprintf(`kurma_cri_call_duration_seconds_bucket{method="StartContainer",le=%q}`, bound)]
		if !ok || value < last {
			t.Errorf("the bucket of %s has %v, %v, the one below %v", bound, value, ok, last)
		}
		last = value
	}
	if last != 4 {
		t.Errorf("the buckets have %v starts", last)
	}
	info, err := os.Stat(n.path("metrics.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
}

// A loopback address serves the metrics too, and no other address does. Without the key there is no socket.
func TestMetricsAreOfThisMachineAlone(t *testing.T) {
	n := newNode(t)
	n.kill()
	free, err := net.Listen("tcp", "127.83.19.7:0") // where nobody else takes the port meanwhile
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	n.writeConfig(map[string]any{"metricsAddress": address})
	n.start()
	if got := n.scrape("tcp", address); len(got) == 0 {
		t.Error("no samples")
	}
	for _, wrong := range []string{"0.0.0.0:9100", ":9100", "10.0.0.1:9100", "127.0.0.1", "unix://metrics.sock", "localhost:9100"} {
		n.writeConfig(map[string]any{"metricsAddress": wrong})
		out, err := n.command().CombinedOutput()
		if want := fmt.Sprintf("metricsAddress %q: want 127.0.0.1:PORT, [::1]:PORT or unix:///PATH\n", wrong); err == nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%s: %v, %q", wrong, err, out)
		}
	}
}
