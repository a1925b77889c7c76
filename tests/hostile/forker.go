package hostile

import "golang.org/x/sys/unix"

// forker makes orphans as fast as it can, some of which stay, until its limit of processes is reached. Then it
// kills those, and begins again.
func forker() error {
	const stays = 8 // one orphan of so many stays
	for i := 0; ; i++ {
		pid, err := fork()
		if err == 0 && pid == 0 {
			if grandchild, err := fork(); err == 0 && grandchild == 0 && i%stays == 0 {
				_, _, _ = unix.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
				for {
					_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
				}
			}
			leave()
		}
		if err != 0 {
			rest()
			continue
		}
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}
}
