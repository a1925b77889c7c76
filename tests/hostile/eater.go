package hostile

import (
	"golang.org/x/sys/unix"
)

// eater fills its memory with small processes, of which none is the largest, and /dev/shm and /tmp with files.
func eater() error {
	const each, pages = 1 << 20, 4096
	for {
		for range 512 {
			memory, err := unix.Mmap(-1, 0, each, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				break
			}
			if pid, errno := fork(); errno == 0 && pid == 0 {
				for i := 0; i < len(memory); i += pages {
					memory[i] = 1
				}
				for {
					_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
				}
			}
			_ = unix.Munmap(memory)
		}
		fill("/dev/shm/eaten")
		rest()
		for range 512 {
			_, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
	}
}
