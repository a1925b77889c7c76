package version

import (
	"runtime/debug"
	"testing"
)

func TestTheLinkerOverridesTheModule(t *testing.T) {
	build := func(version string) *debug.BuildInfo { return &debug.BuildInfo{Main: debug.Module{Version: version}} }
	for _, test := range []struct {
		linked string
		info   *debug.BuildInfo
		want   string
	}{
		{"1.2.3", build("v0.1.0"), "1.2.3"},
		{"", build("v0.1.0"), "0.1.0"},
		{"", build("(devel)"), "unknown"},
		{"", build(""), "unknown"},
		{"", nil, "unknown"},
	} {
		if got := of(test.linked, test.info); got != test.want {
			t.Errorf("%q and %+v: %q, want %q", test.linked, test.info, got, test.want)
		}
	}
}
