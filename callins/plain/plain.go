// Package plain makes the plain calls of status and run in C: a constructor of the C library (plain.c) makes the whole
// call before the program's Go runtime would start, which takes as long as all the rest. A program that imports the
// package has it. All other calls, and their errors, are those of package callins.
//
// status is plain without arguments. run is plain if its command has no terminal, its stdin is the null device, its
// stdout and stderr are pipes or the null device, its app's name needs no escape in JSON, and its settings, of at most
// 64 KiB, are in a pipe that their writer closes at once.
package plain

// #cgo CFLAGS: -Wall -Wextra -Werror -O2 -I${SRCDIR}/../../internal/c
// #include "plain.h"
import "C"

import (
	"os"
	"syscall"

	"kurma.io/stager/callins"
	_ "kurma.io/stager/internal/c" // the C files include its headers
)

// Streams returns callins.ProcessStreams. If C has begun the call of this process and left its end to Go, they say so.
func Streams() callins.Streams {
	s := callins.ProcessStreams()
	if C.plain_begun.connection >= 0 {
		s.Begun = os.NewFile(uintptr(C.plain_begun.connection), "supervisor")
		s.Ended = syscall.Signal(C.plain_begun.signal)
	}
	return s
}
