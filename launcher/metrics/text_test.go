package metrics

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// Samples of one metric are together, whosever they are; a label without a value is none, and every other value is
// readable text.
func TestReadingsAsText(t *testing.T) {
	var text Text
	second := Readings{Labels: Labels{Name: "b"}}
	second.Add("container_processes", 2)
	second.Add("container_network_receive_bytes_total", 7, "a\"\\\n\xff")
	first := Readings{Labels: Labels{Container: "app", Name: "a"}}
	first.Add("container_processes", 1)
	first.Add("container_cpu_usage_seconds_total", 0.25, "total")
	text.Readings([]Readings{first, second})
	const want = `# HELP container_cpu_usage_seconds_total CPU time.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="app",name="a",cpu="total"} 0.25
# HELP container_processes Processes.
# TYPE container_processes gauge
container_processes{container="app",name="a"} 1
container_processes{name="b"} 2
# HELP container_network_receive_bytes_total Bytes received.
# TYPE container_network_receive_bytes_total counter
container_network_receive_bytes_total{name="b",interface="a\"\\\n` + "\uFFFD" + `"} 7
`
	if got := text.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// Clients that have gone before their turn have no turn, and do not hold up those that wait.
func TestClientsThatHaveGoneAreNotServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "metrics.sock")
	writing, proceed := make(chan struct{}, 100), make(chan struct{})
	stop, err := Serve("unix://"+path, func(*Text) error {
		writing <- struct{}{}
		<-proceed
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ask := func() *net.UnixConn {
		t.Helper()
		client, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if _, err := io.WriteString(client, "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return client
	}
	first := ask()
	<-writing
	for range 10 {
		gone := ask()
		if err := gone.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(gone); err != nil || len(answer) > 0 {
			t.Fatalf("a client that has gone is answered %q, %v", answer, err)
		}
	}
	last := ask()
	close(proceed)
	for _, client := range []*net.UnixConn{first, last} {
		if answer, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK") {
			t.Errorf("%q, %v", answer, err)
		}
	}
	if n := len(writing); n != 1 { // beside the first
		t.Errorf("%d texts for the last client", n)
	}
}
