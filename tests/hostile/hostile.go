// Package hostile has programs that an app of a pod may run to harm the pod's supervisor, its
// neighbours or the host. A test program runs one of them as an app.
package hostile

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Programs returns the programs by name. Each runs until it is killed; an error means that it cannot
// begin. They ignore SIGTERM.
func Programs() map[string]func() error {
	all := map[string]func() error{
		"stopper": stopper, "killer": killer, "forker": forker, "eater": eater, "leaser": leaser, "squatter": squatter,
		"signaller": signaller, "raiser": raiser, "queuer": queuer, "reopener": reopener, "holder": holder,
	}
	for name, program := range all {
		all[name] = func() error {
			signal.Ignore(syscall.SIGTERM)
			return program()
		}
	}
	return all
}

// fork forks this process by the bare system call: in the child, where pid is 0, the Go runtime does not
// work. Only raw system calls may follow there.
func fork() (pid int, err unix.Errno) {
	r, _, err := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	return int(r), err
}

// leave ends a process that fork has made.
func leave() { _, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0) }

// rest waits, so that one program does not take all of the processor from the others.
func rest() { time.Sleep(time.Millisecond) }

// fill writes to a new file until the file system is full, and removes it.
func fill(path string) {
	f, err := os.Create(path)
	if err != nil {
		return
	}
	defer f.Close()
	for block := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(block)
	}
	_ = os.Remove(path)
}
