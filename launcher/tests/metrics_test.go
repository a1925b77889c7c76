package tests

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/exposition"
	"kurma.io/stager/tests/harness"
)

// parsed returns the samples of a text.
func parsed(t *testing.T, text string) map[string]float64 {
	t.Helper()
	samples, err := exposition.Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return samples
}

// Prometheus gets cAdvisor's metrics of apps and of their pods' networks.
func TestMetricsOfAppsAndPods(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, `[{"name": "sample", "aci": "kurma.io/stager/sample-netplugin", "containerInterface": "veth{{shortuuid}}", "subnet": "10.99.0.0/24"}]`)
	busy := suite.Shell("busy", "head -c 20971520 /dev/zero >/file; while :; do :; done")
	busy.App.Isolators = []any{
		harness.Isolator("resource/memory", map[string]string{"limit": "64Mi"}),
		harness.Isolator("resource/cpu", map[string]string{"limit": "500m"}),
	}
	p := m.connect("used", harness.PodOf(busy, server("web", "answer for")), "sample")
	m.Up("plain", harness.PodOf(suite.Shell("idle", "exec sleep 1000")))
	answers(t, "answer for 10.99.0.1", func() string { return m.host.fetch("10.99.0.2", 8080) })
	var samples map[string]float64
	find := func(name, labels string) (value float64, ok bool) {
		for key, value := range samples {
			if all, is := strings.CutPrefix(key, name+"{"); is && !slices.ContainsFunc(strings.Split(labels, " "), func(label string) bool { return !strings.Contains(all, label) }) {
				return value, true
			}
		}
		return 0, false
	}
	const ofBusy = `container="busy" name="used/busy" pod="used" /apps/busy"`
	harness.Eventually(t, "busy has used a second", func() bool {
		samples = parsed(t, m.Must("metrics"))
		seconds, _ := find("container_cpu_usage_seconds_total", ofBusy+` cpu="total"`)
		cache, _ := find("container_memory_cache", ofBusy)
		return seconds > 1 && cache >= 16<<20
	})
	for _, tt := range []struct {
		name, labels string
		low, high    float64
	}{
		{"container_memory_usage_bytes", ofBusy, 16 << 20, 64 << 20},
		{"container_spec_memory_limit_bytes", ofBusy, 64 << 20, 64 << 20},
		{"container_spec_memory_limit_bytes", `name="used/web"`, 0, 0},
		{"container_spec_cpu_quota", ofBusy, 50_000, 50_000},
		{"container_spec_cpu_period", ofBusy, 100_000, 100_000},
		{"container_cpu_cfs_periods_total", ofBusy, 1, 1 << 40},
		{"container_processes", ofBusy, 1, 1},
		{"container_processes", `name="plain/idle"`, 1, 1},
		{"container_oom_events_total", ofBusy, 0, 0},
		{"container_network_receive_bytes_total", `name="used" pod="used" id="/ ` + p.UUID, 100, 1 << 40},
	} {
		if got, ok := find(tt.name, tt.labels); !ok || got < tt.low || got > tt.high {
			t.Errorf("%s{%s}: %v, %t, want %v to %v", tt.name, tt.labels, got, ok, tt.low, tt.high)
		}
	}
	for _, none := range [][2]string{
		{"container_cpu_cfs_periods_total", `name="used/web"`},
		{"container_network_receive_bytes_total", `name="plain"`},
		{"container_network_receive_bytes_total", `interface="lo"`},
	} {
		if got, ok := find(none[0], none[1]); ok {
			t.Errorf("%q: %v", none, got)
		}
	}
	m.Must("stop", "used")
	for key := range parsed(t, m.Must("metrics")) {
		if strings.Contains(key, `pod="used"`) {
			t.Errorf("a pod that has ended has %s", key)
		}
	}
}

// The launcher serves what it prints, to root by a socket, until it is stopped.
func TestTheLauncherServesMetrics(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	b.Up("p", harness.PodOf(suite.Shell("a", "exec sleep 1000")))
	socket := filepath.Join(t.TempDir(), "run", "metrics.sock")
	cmd := b.Command("metrics", "--listen", "unix://"+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	var text []byte
	harness.Eventually(t, "the launcher serves", func() bool {
		response, err := client.Get("http://launcher/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err = io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Fatalf("%s, %v\n%s", response.Status, err, text)
		}
		return true
	})
	served, printed := parsed(t, string(text)), parsed(t, b.Must("metrics"))
	for _, samples := range []map[string]float64{served, printed} { // the app may use a device between the two
		maps.DeleteFunc(samples, func(key string, _ float64) bool { return strings.Contains(key, `device="`) })
	}
	if got, want := slices.Sorted(maps.Keys(served)), slices.Sorted(maps.Keys(printed)); !slices.Equal(got, want) || len(got) < 20 {
		t.Errorf("served are %q, printed %q", got, want)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
	for _, wrong := range []string{"0.0.0.0:9100", "localhost:9100", "unix://metrics.sock"} {
		if r := b.Launcher("metrics", "--listen", wrong); r.Code != 1 || !strings.Contains(r.Stderr, "want 127.0.0.1:PORT") {
			t.Errorf("%s: %+v", wrong, r)
		}
	}
}
