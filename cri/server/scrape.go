package server

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// tally is what the server counts about itself from its start on.
type tally struct {
	mu       sync.Mutex
	calls    map[callKind]uint64
	times    map[string]*histogram // of unary calls, by method
	pulls    map[string]uint64     // by result
	restarts uint64
}

type callKind struct{ method, code string }

// The results of pulls. An unchanged image was not pulled again.
const (
	pulledAnew      = "pulled"
	pulledUnchanged = "unchanged"
	pullFailed      = "failed"
)

// histogram counts durations; the last count is of those above all bounds.
type histogram struct {
	counts [len(callBounds) + 1]uint64
	sum    time.Duration
}

// callBounds are the upper bounds of a histogram's buckets in seconds.
//
//nolint:gochecknoglobals // a table that is only read
var callBounds = [...]float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120}

// call counts a call. The methods are those of the CRI: gRPC calls no handler for others.
func (t *tally) call(method, code string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = make(map[callKind]uint64)
	}
	t.calls[callKind{method, code}]++
}

// took adds the duration of a call.
func (t *tally) took(method string, duration time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.times == nil {
		t.times = make(map[string]*histogram)
	}
	h := t.times[method]
	if h == nil {
		h = new(histogram)
		t.times[method] = h
	}
	bucket, _ := slices.BinarySearch(callBounds[:], duration.Seconds())
	h.counts[bucket]++
	h.sum += duration
}

func (t *tally) pull(result string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pulls == nil {
		t.pulls = map[string]uint64{pulledAnew: 0, pulledUnchanged: 0, pullFailed: 0}
	}
	t.pulls[result]++
}

// start counts the start of a container: kubelet numbers the attempts of one from 0 on.
func (t *tally) start(attempt uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if attempt > 0 {
		t.restarts++
	}
}

// write writes in the text format of Prometheus.
func (t *tally) write(out *bytes.Buffer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin(out, "kurma_cri_calls_total", "counter", "Calls of the CRI by method and gRPC code.")
	order := func(a, b callKind) int { return strings.Compare(a.method+" "+a.code, b.method+" "+b.code) }
	for _, k := range slices.SortedFunc(maps.Keys(t.calls), order) {
		fmt.Fprintf(out, "kurma_cri_calls_total{method=%q,code=%q} %d\n", k.method, k.code, t.calls[k])
	}
	const duration = "kurma_cri_call_duration_seconds"
	begin(out, duration, "histogram", "Durations of calls, but for streams.")
	for _, method := range slices.Sorted(maps.Keys(t.times)) {
		h, count := t.times[method], uint64(0)
		for i, bound := range callBounds {
			count += h.counts[i]
			fmt.Fprintf(out, "%s_bucket{method=%q,le=\"%g\"} %d\n", duration, method, bound, count)
		}
		count += h.counts[len(callBounds)]
		fmt.Fprintf(out, "%s_bucket{method=%q,le=\"+Inf\"} %d\n", duration, method, count)
		fmt.Fprintf(out, "%s_sum{method=%q} %g\n", duration, method, h.sum.Seconds())
		fmt.Fprintf(out, "%s_count{method=%q} %d\n", duration, method, count)
	}
	begin(out, "kurma_cri_pulls_total", "counter", "Pulls of images from registries by result.")
	for _, result := range slices.Sorted(maps.Keys(t.pulls)) {
		fmt.Fprintf(out, "kurma_cri_pulls_total{result=%q} %d\n", result, t.pulls[result])
	}
	begin(out, "kurma_cri_container_restarts_total", "counter", "Starts of containers that had been started before.")
	fmt.Fprintf(out, "kurma_cri_container_restarts_total %d\n", t.restarts)
}

// begin writes the lines before a metric's samples.
func begin(out *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// writeStates writes how many sandboxes and containers there are now.
func (s *Server) writeStates(out *bytes.Buffer) error {
	pods, err := s.listSandboxes(nil)
	if err != nil {
		return err
	}
	containers, err := s.listContainers(nil)
	if err != nil {
		return err
	}
	counts := make(map[string]int)
	for _, p := range pods {
		counts[p.GetState().String()]++
	}
	for _, c := range containers {
		counts[c.GetState().String()]++
	}
	write := func(name, prefix string, states map[int32]string) {
		for _, number := range slices.Sorted(maps.Keys(states)) {
			state := states[number]
			fmt.Fprintf(out, "%s{state=%q} %d\n", name, strings.ToLower(strings.TrimPrefix(state, prefix)), counts[state])
		}
	}
	begin(out, "kurma_cri_pods", "gauge", "Pods' sandboxes by state.")
	write("kurma_cri_pods", "SANDBOX_", runtimeapi.PodSandboxState_name)
	begin(out, "kurma_cri_containers", "gauge", "Containers by state.")
	write("kurma_cri_containers", "CONTAINER_", runtimeapi.ContainerState_name)
	begin(out, "kurma_cri_info", "gauge", "The version of the server.")
	fmt.Fprintf(out, "kurma_cri_info{version=%q} 1\n", s.version)
	return nil
}

// unixPrefix begins a Config.MetricsAddress that is a path.
const unixPrefix = "unix://"

// checkMetricsAddress returns an error for an address that others than this machine's users could connect to.
func checkMetricsAddress(address string) error {
	if path, isPath := strings.CutPrefix(address, unixPrefix); address == "" || isPath && strings.HasPrefix(path, "/") {
		return nil
	}
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsLoopback() {
		return nil
	}
	return fmt.Errorf("metricsAddress %q: want 127.0.0.1:PORT, [::1]:PORT or unix:///PATH", address)
}

// serveMetrics serves /metrics until stop is called, if the configuration has an address. The limits are those of
// streams: every user of the machine can connect to a loopback address.
func (s *Server) serveMetrics() (stop func(), err error) {
	address := s.config.MetricsAddress
	if address == "" {
		return func() {}, nil
	}
	var listener net.Listener
	if path, isPath := strings.CutPrefix(address, unixPrefix); isPath {
		listener, err = makeSocket(path)
	} else {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	clients := &clients{Listener: listener}
	handler := http.NewServeMux()
	handler.HandleFunc("GET /metrics", s.scrape)
	server := &http.Server{
		Handler: handler, ConnContext: connectionContext, ConnState: clients.follow,
		ReadTimeout: strangersLimit, WriteTimeout: strangersLimit, MaxHeaderBytes: maxHeader - httpSlop,
	}
	go func() { _ = server.Serve(clients) }()
	return func() { _ = errors.Join(server.Close(), listener.Close()) }, nil
}

// scrape answers a scrape; one is made at a time.
func (s *Server) scrape(w http.ResponseWriter, _ *http.Request) {
	var out bytes.Buffer
	s.scrapes.Lock()
	s.tally.write(&out)
	err := s.writeStates(&out)
	s.scrapes.Unlock()
	if err != nil {
		http.Error(w, oneLine(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(out.Bytes()) // a client that has gone
}
