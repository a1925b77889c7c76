package container

// #cgo LDFLAGS: -pthread
// #include "stages.h"
import "C"

import (
	"fmt"
	"syscall"
)

// watchStages has the processes of a start continued when an app has stopped them, see stages.c, until this
// program ends. It reads /proc, which must be that of the program's PID namespace.
func watchStages() error {
	if errno := C.stages_watch(); errno != 0 {
		return fmt.Errorf("start the thread that watches starts: %w", syscall.Errno(errno))
	}
	return nil
}

// starting marks a start as under way, until the caller calls done.
func starting() (done func()) {
	C.stages_mark(1)
	return func() { C.stages_mark(-1) }
}
