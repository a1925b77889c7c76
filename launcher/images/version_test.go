package images

import "testing"

func TestVersionsAreInOrder(t *testing.T) {
	order := []string{
		"", "edge", "latest", "0.9", "1.0-alpha", "1.0-alpha.1", "1.0-alpha.beta", "1.0-rc.2", "1.0-rc.10", "1.0", "1.0.0", "v1.0.1",
		"1.2", "1.9", "1.10", "1.10.99999999999999999999999", "1.10.100000000000000000000000", "2", "20240101",
	}
	for i, a := range order {
		for j, b := range order {
			want := compareBool(i > j, i < j)
			if got := compareVersions(a, b); got != want {
				t.Errorf("compareVersions(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"1.0", "v1.0"}, {"1.0+a", "1.0+b"}, {"01.0", "1.0"}} {
		if got := compareVersions(same[0], same[1]); got != 0 {
			t.Errorf("compareVersions(%q, %q) = %d", same[0], same[1], got)
		}
	}
}
