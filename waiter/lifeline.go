package waiter

// #include "waiter.h"
import "C"

import (
	"fmt"
	"os"
)

// tie ties this process, PID 1 of the pod's PID namespace, and the waiter together (lifeline.c): when one of them is
// gone, the other kills the pod.
func (l *Line) tie() error {
	pids, err := os.Open("/proc/self/ns/pid")
	if err != nil {
		return fmt.Errorf("open own PID namespace: %w", err)
	}
	defer pids.Close()
	fd, err := C.lifeline_start()
	if fd < 0 {
		return fmt.Errorf("start lifeline: %w", err)
	}
	end := os.NewFile(uintptr(fd), "lifeline")
	defer end.Close()
	return l.ask(&C.struct_waiter_request{kind: C.WAITER_LIFELINE}, end, pids)
}
