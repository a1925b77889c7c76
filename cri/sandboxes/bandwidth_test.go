package sandboxes

import (
	"testing"

	"kurma.io/stager/cri/records"
)

func TestRatesAreQuantities(t *testing.T) {
	for text, want := range map[string]uint64{
		"1000": 1000, "10M": 10_000_000, "+1.5G": 1_500_000_000, "1Ki": 1024, "0.001E": 1_000_000_000_000_000, "1P": 1_000_000_000_000_000,
		"1e6": 1_000_000, "1E+06": 1_000_000, "15e-1k": 0, "1500000m": 1500, "1000000000000000.000000000": 1_000_000_000_000_000,
		"": 0, "999": 0, "-1M": 0, "2P": 0, "1Ei": 0, "10Mbit": 0, "1e99": 0,
		// These took hours.
		"1000000000000000000000e2000000000": 0, "0e2147483647": 0, "1e-2147483647": 0,
	} {
		r := records.Sandbox{Annotations: map[string]string{ingressAnnotation: text}}
		limits, err := bandwidthOf(r)
		if (err == nil) != (want > 0) || err == nil && limits.IngressRate != want {
			t.Errorf("%q: %v, %v, want %d", text, limits, err, want)
		}
	}
}
