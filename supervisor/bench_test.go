package supervisor_test

import (
	"fmt"
	"syscall"
	"testing"

	"kurma.io/stager/crilog"
	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
)

// crilogStream is one stream of an app's log.
type crilogStream struct{ w *crilog.Writer }

func (s crilogStream) Write(p []byte) (int, error) {
	s.w.Append(crilog.Stdout, p)
	return len(p), nil
}

// BenchmarkOutput has an app write 100 MB, and reports besides the throughput
// the CPU time that the supervisor took for it.
func BenchmarkOutput(b *testing.B) {
	for _, size := range []int{100, 4096, 65536} {
		b.Run(fmt.Sprintf("writes of %d", size), func(b *testing.B) {
			const total = 100_000_000
			fakes := newFakes(b)
			writer, err := crilog.Open(b.TempDir(), crilog.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer writer.Close()
			b.Setenv("SUPERVISOR_TEST_WRITE", fmt.Sprint(total))
			b.Setenv("SUPERVISOR_TEST_CHUNK", fmt.Sprint(size))
			b.SetBytes(total)
			before := cpu(b)
			for b.Loop() {
				pod := New(Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{
					Name: "app", Stdout: crilogStream{writer}, Main: fakes.run("/proc/self/exe"),
				}}})
				if code, err := pod.Run(b.Context(), func() error { return nil }); code != 0 || err != nil {
					b.Fatal(code, err)
				}
			}
			b.ReportMetric((cpu(b)-before)/float64(b.N), "cpu-s/op")
		})
	}
}

func cpu(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}
