package podplan

import (
	"strings"
	"testing"
)

func TestPodName(t *testing.T) {
	tests := []struct{ file, want string }{
		{"nats", "nats"},
		{"My_pod-1.2", "My_pod-1.2"},
		{"two lines\n00000000  forged  running", "two-lines-00000000--forged--running"},
		{"\x1b[2Jé\xff", "2J--"},
		{"..", "pod"},
		{strings.Repeat("x", 300), strings.Repeat("x", 64)},
	}
	for _, tt := range tests {
		if got := podName(tt.file); got != tt.want || !IsName(got) {
			t.Errorf("podName(%q) = %q, want %q", tt.file, got, tt.want)
		}
	}
}
