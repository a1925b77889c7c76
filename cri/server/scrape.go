package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/launcher/metrics"

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
func (t *tally) write(out *metrics.Text) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out.Begin("kurma_cri_calls_total", metrics.Counter, "Calls of the CRI by method and gRPC code.")
	order := func(a, b callKind) int { return strings.Compare(a.method+" "+a.code, b.method+" "+b.code) }
	for _, k := range slices.SortedFunc(maps.Keys(t.calls), order) {
		out.Sample("kurma_cri_calls_total", float64(t.calls[k]), "method", k.method, "code", k.code)
	}
	const duration = "kurma_cri_call_duration_seconds"
	out.Begin(duration, metrics.Histogram, "Durations of calls, but for streams.")
	for _, method := range slices.Sorted(maps.Keys(t.times)) {
		h, count := t.times[method], 0.0
		bucket := func(i int, bound string) {
			count += float64(h.counts[i])
			out.Sample(duration+"_bucket", count, "method", method, "le", bound)
		}
		for i, bound := range callBounds {
			bucket(i, fmt.Sprint(bound))
		}
		bucket(len(callBounds), "+Inf")
		out.Sample(duration+"_sum", h.sum.Seconds(), "method", method)
		out.Sample(duration+"_count", count, "method", method)
	}
	out.Begin("kurma_cri_pulls_total", metrics.Counter, "Pulls of images from registries by result.")
	for _, result := range slices.Sorted(maps.Keys(t.pulls)) {
		out.Sample("kurma_cri_pulls_total", float64(t.pulls[result]), "result", result)
	}
	const restarts = "kurma_cri_container_restarts_total"
	out.Begin(restarts, metrics.Counter, "Starts of containers that had been started before.")
	out.Sample(restarts, float64(t.restarts))
}

// writeStates writes how many sandboxes and containers there are now.
func (s *Server) writeStates(out *metrics.Text) error {
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
	write := func(name, help, prefix string, states map[int32]string) {
		out.Begin(name, metrics.Gauge, help)
		for _, number := range slices.Sorted(maps.Keys(states)) {
			state := states[number]
			out.Sample(name, float64(counts[state]), "state", strings.ToLower(strings.TrimPrefix(state, prefix)))
		}
	}
	write("kurma_cri_pods", "Pods' sandboxes by state.", "SANDBOX_", runtimeapi.PodSandboxState_name)
	write("kurma_cri_containers", "Containers by state.", "CONTAINER_", runtimeapi.ContainerState_name)
	out.Begin("kurma_cri_info", metrics.Gauge, "The version of the server.")
	out.Sample("kurma_cri_info", 1, "version", s.version)
	return nil
}

// serveMetrics serves /metrics until stop is called, if the configuration has an address.
func (s *Server) serveMetrics() (stop func(), err error) {
	if s.config.MetricsAddress == "" {
		return func() {}, nil
	}
	return metrics.Serve(s.config.MetricsAddress, func(out *metrics.Text) error {
		s.tally.write(out)
		return s.writeStates(out)
	})
}
