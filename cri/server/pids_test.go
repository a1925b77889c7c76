package server

import (
	"os"
	"testing"
)

// The namespace of a number is the app's only if the app has the number still.
func TestPIDNamespacesOfAppsThatEnd(t *testing.T) {
	for _, test := range []struct {
		numbers []int
		ok      bool
	}{
		{[]int{os.Getpid(), os.Getpid()}, true},
		{[]int{os.Getpid(), 0}, false},
		{[]int{0}, false},
	} {
		left := test.numbers
		file, err := openPIDs(func() (int, error) {
			pid := left[0]
			left = left[1:]
			return pid, nil
		})
		if (err == nil) != test.ok || (file == nil) == test.ok {
			t.Errorf("%v: %v, %v", test.numbers, file, err)
		}
		_ = file.Close()
	}
}
