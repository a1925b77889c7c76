package metrics

import (
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A container with very many descriptors does not hold up the metrics of the node.
func TestTooManyDescriptorsAreNotCounted(t *testing.T) {
	counted := func() []string {
		var names []string
		values := new(Readings)
		values.addProcesses([]int{os.Getpid()})
		for _, m := range values.Samples {
			if m.Value > 0 {
				names = append(names, m.Name)
			}
		}
		return names
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	opened := pair[:]
	t.Cleanup(func() {
		for _, fd := range opened {
			_ = unix.Close(fd)
		}
	})
	all := []string{"container_processes", "container_file_descriptors", "container_sockets"}
	if got := counted(); !slices.Equal(got, all) {
		t.Errorf("%q, want %q", got, all)
	}
	for range mostDescriptors {
		fd, err := unix.FcntlInt(uintptr(pair[0]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		opened = append(opened, fd)
	}
	if got := counted(); !slices.Equal(got, all[:1]) {
		t.Errorf("%q, want %q", got, all[:1])
	}
}
