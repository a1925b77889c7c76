package hostile

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signaller sends every signal in every way to each thread of PID 1, for ever.
func signaller() error {
	for unix.Access(Up, unix.F_OK) != nil {
		rest()
	}
	for {
		if _, err := Signal(1); err != nil {
			return err
		}
		rest()
	}
}

// Signal sends every signal to each thread of a process in every way that the kernel has, and returns how many calls
// have succeeded. It sends SIGKILL and SIGSTOP to PID 1 only, which they do not concern. An error means that it
// cannot begin.
func Signal(pid int) (sent int, err error) {
	threads := Threads(pid)
	if len(threads) == 0 {
		return 0, fmt.Errorf("signal process %d: no thread of it is in /proc", pid)
	}
	owned, err := newOwned()
	if err != nil {
		return 0, err
	}
	defer owned.close()
	for _, thread := range threads {
		for sig := 1; sig <= 64; sig++ {
			if pid != 1 && (sig == int(unix.SIGKILL) || sig == int(unix.SIGSTOP)) {
				continue
			}
			sent += signalThread(pid, thread, sig) + owned.signal(thread, sig)
		}
	}
	return sent, nil
}

// Threads returns the threads of a process by the numbers that /proc has, as those of one whose own folder of them is
// masked.
func Threads(pid int) (threads []int) {
	const most = 4096
	for thread := 1; thread <= most; thread++ {
		if group(thread) == pid {
			threads = append(threads, thread)
		}
	}
	return threads
}

// group returns the process that a thread belongs to, 0 for none.
func group(thread int) int {
	f, err := os.Open(filepath.Join("/proc", strconv.Itoa(thread), "status"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "Tgid:"); found {
			n, _ := strconv.Atoi(strings.TrimSpace(value))
			return n
		}
	}
	return 0
}

// signalThread sends a signal to a process and its thread, with every code that the kernel lets a process choose.
func signalThread(pid, thread, sig int) (sent int) {
	call := func(number uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno == 0 {
			sent++
		}
	}
	p, t, s := uintptr(pid), uintptr(thread), uintptr(sig)
	call(unix.SYS_KILL, p, s)
	call(unix.SYS_TGKILL, p, t, s)
	for _, code := range []int32{-1, -2, -3, -4, -5, -60} { // SI_QUEUE to SI_SIGIO, SI_ASYNCNL
		info := [32]int32{0: int32(sig), 2: code} // siginfo_t
		at := uintptr(unsafe.Pointer(&info))
		call(unix.SYS_RT_SIGQUEUEINFO, p, s, at)
		call(unix.SYS_RT_TGSIGQUEUEINFO, p, t, s, at)
		for id, flags := range map[int]int{pid: 0, thread: unix.O_EXCL} { // PIDFD_THREAD, Linux 6.9
			fd, err := unix.PidfdOpen(id, flags)
			if err != nil {
				continue
			}
			for _, scope := range []uintptr{0, 1, 2, 4} { // PIDFD_SIGNAL_*, Linux 6.9: as the descriptor's, thread, process, group
				call(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(fd), s, at, scope)
				call(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(fd), s, 0, scope)
			}
			_ = unix.Close(fd)
		}
	}
	return sent
}

// owned is a pipe for whose bytes the kernel sends signals to its owner (fcntl(2), F_SETOWN).
type owned struct{ r, w int }

func newOwned() (owned, error) {
	var ends [2]int
	err := unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(ends[0]), unix.F_SETFL, unix.O_ASYNC|unix.O_NONBLOCK)
	}
	return owned{ends[0], ends[1]}, err
}

func (o owned) close() { _, _ = unix.Close(o.r), unix.Close(o.w) }

// signal makes a thread the owner, and the pipe readable.
func (o owned) signal(thread, sig int) (sent int) {
	const ownerThread = 0 // F_OWNER_TID
	owner := [2]int32{ownerThread, int32(thread)}
	_, _, errno := unix.RawSyscall(unix.SYS_FCNTL, uintptr(o.r), unix.F_SETOWN_EX, uintptr(unsafe.Pointer(&owner)))
	_, err := unix.FcntlInt(uintptr(o.r), unix.F_SETSIG, sig)
	_, writeErr := unix.Write(o.w, []byte{0})
	_, readErr := unix.Read(o.r, make([]byte, 1))
	if errno != 0 || errors.Join(err, writeErr, readErr) != nil {
		return 0
	}
	return 1
}
