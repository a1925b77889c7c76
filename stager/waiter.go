package main

// #cgo CFLAGS: -Wall -Wextra -Werror -O2
// #include "waiter.h"
import "C"

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot"
	"kurma.io/stager/names"
)

// Names that the C files have a copy of, by -D or in waiter.h; TestNamesInC compares them.
const (
	waiterProgram     = C.STAGER_PROGRAM
	waiterEnvironment = C.SUPERVISOR_ENV
)

// waiter is the supervisor's side of its channel to the stager's first process,
// waiter.c. waiter.h describes the messages. Its methods may be called by several
// goroutines at once.
type waiter struct {
	channel    *net.UnixConn
	namespaces uintptr       // those that the waiter made, as in clone(2)
	settled    chan struct{} // closed by Settle
}

// takeWaiter takes the channel that mark, the value of names.SupervisorVariable, names.
func takeWaiter(mark string) (waiter, error) {
	fd, err := strconv.Atoi(mark)
	if err != nil {
		return waiter{}, fmt.Errorf("%s: %w", names.SupervisorVariable, err)
	}
	file := os.NewFile(uintptr(fd), "channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return waiter{}, fmt.Errorf("%s: %w", names.SupervisorVariable, err)
	}
	channel, ok := conn.(*net.UnixConn)
	if !ok {
		return waiter{}, fmt.Errorf("%s: descriptor %d is not a Unix socket", names.SupervisorVariable, fd)
	}
	var welcome C.struct_waiter_welcome
	if err := readStruct(channel, &welcome); err != nil {
		return waiter{}, fmt.Errorf("read the waiter's welcome: %w", err)
	}
	return waiter{channel: channel, namespaces: uintptr(welcome.namespaces), settled: make(chan struct{})}, os.Unsetenv(names.SupervisorVariable)
}

// Settle implements boot.Waiter.
func (w waiter) Settle(wanted uintptr, ready *os.File) error {
	request := C.struct_waiter_request{kind: C.WAITER_SETTLE, namespaces: C.uint32_t(wanted), ready: -1}
	if ready != nil {
		request.ready = C.int32_t(ready.Fd())
	}
	if err := w.ask(&request); err != nil {
		return err
	}
	if wanted != w.namespaces {
		return boot.ErrOtherNamespaces
	}
	close(w.settled)
	return nil
}

// Up implements boot.Waiter.
func (w waiter) Up() error { return w.ask(&C.struct_waiter_request{kind: C.WAITER_UP}) }

// ask sends a request, with files.
func (w waiter) ask(request *C.struct_waiter_request, files ...*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := w.channel.WriteMsgUnix(bytesOf(request), rights, nil); err != nil {
		return fmt.Errorf("ask the waiter: %w", err)
	}
	return nil
}

// awaitEnd returns when the waiter has ended. The waiter says nothing more.
func (w waiter) awaitEnd() {
	_, _ = w.channel.Read(make([]byte, 1)) // ends at end of file, or with an error that means the same
}

// bytesOf returns the memory of a C structure, which has no pointers in it.
func bytesOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// readStruct reads a C structure, which has no pointers in it. The error is io.EOF
// when there is nothing to read.
func readStruct[T any](r io.Reader, v *T) error {
	_, err := io.ReadFull(r, bytesOf(v))
	return err
}
