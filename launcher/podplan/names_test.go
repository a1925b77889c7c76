package podplan

import (
	"strings"
	"testing"
)

func TestFreeNameAppendsANumber(t *testing.T) {
	long := strings.Repeat("x", 64)
	taken := map[string]bool{"a": true, "a-2": true, "b-2": true, long: true, long[:62] + "-2": true}
	for name, want := range map[string]string{"a": "a-3", "b": "b", "b-2": "b-2-2", long: long[:62] + "-3"} {
		if got := freeName(name, func(name string) bool { return taken[name] }); got != want || !IsName(got) {
			t.Errorf("freeName(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestPodNameIsMadeFromTheFilesName(t *testing.T) {
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

func TestAppNameIsMadeFromTheImagesName(t *testing.T) {
	for image, want := range map[string]string{
		"example.com/my_app.1":                            "my-app-1",
		"example.com/-a-":                                 "a",
		"example.com/é":                                   "app",
		"example.com/" + strings.Repeat("x", 300):         strings.Repeat("x", 200),
		"example.com/" + strings.Repeat("x", 199) + "_yz": strings.Repeat("x", 199),
	} {
		if got := appName(image); got != want {
			t.Errorf("appName(%q) = %q, want %q", image, got, want)
		}
	}
}
