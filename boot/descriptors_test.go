package boot

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// A stdio variable names a descriptor that the daemon has not passed, and the waiter's has the number.
func TestTheLineToTheWaiterIsNoStreamOfAnApp(t *testing.T) {
	var ends [2]int
	if err := unix.Pipe(ends[:]); err != nil { // as it is passed, not close-on-exec
		t.Fatal(err)
	}
	for _, fd := range ends {
		defer unix.Close(fd)
	}
	for _, line := range []string{"%d,1610612736", "%d,0,1610612736", "0,%d,1610612736"} {
		in := TakeDescriptors([]string{
			names.SupervisorVariable + "=" + fmt.Sprintf(line, ends[0]),
			names.StdioPrefix + "a" + names.StdinSuffix + fmt.Sprint("=", ends[0]),
		})
		if len(in.Stdio) > 0 {
			t.Errorf("%s: %v", line, in.Stdio)
		}
	}
	if _, err := unix.FcntlInt(uintptr(ends[0]), unix.F_GETFD, 0); err != nil {
		t.Errorf("the line is closed: %v", err)
	}
}
