package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The table of the supervisor's descriptors is large from the start, see make_room_for_descriptors in pid1/first.c.
func TestTheSupervisorHasRoomForDescriptors(t *testing.T) {
	t.Parallel()
	p := launch(t, []testApp{{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}}}})
	p.isReady()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "\nFDSize:")
	size, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(after, "\n", 2)[0]))
	if err != nil || size < 1024 {
		t.Errorf("%v: room for %d descriptors", err, size)
	}
}
