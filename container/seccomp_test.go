package container

import "testing"

func BenchmarkDefaultFilter(b *testing.B) {
	for b.Loop() {
		f, err := DefaultFilter([]string{"CAP_CHOWN"})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(f.program)/8), "insns")
	}
}
