package hostile

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// squatter takes as many names of the pod's shared namespaces as it gets: terminals, System V semaphores and shared
// memory, sockets, descriptors; and as many threads, which have PIDs as well. It keeps them.
func squatter() error {
	for range 100 {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	var kept []*os.File
	for i := 0; ; i++ {
		if f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err == nil {
			kept = append(kept, f)
		}
		_, _, _ = unix.Syscall(unix.SYS_SHMGET, 0, 4096, unix.IPC_CREAT|0o600)
		_, _, _ = unix.Syscall(unix.SYS_SEMGET, 0, 16, unix.IPC_CREAT|0o600)
		if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			if unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@squatter%d", i)}) != nil {
				_ = unix.Close(fd)
			}
		} else {
			rest()
		}
		runtime.KeepAlive(kept)
	}
}
