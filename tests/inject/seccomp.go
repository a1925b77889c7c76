package inject

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif of the kernel: a thread waits for the answer before it makes a system call.
type notification struct {
	id         uint64
	tid, flags uint32
	number     uint32
	arch       uint32
	at         uint64
	args       [6]uint64
}

// answer is struct seccomp_notif_resp of the kernel.
type answer struct {
	id    uint64
	value int64
	errno int32 // negative
	flags uint32
}

// The requests of seccomp_unotify(2), of linux/seccomp.h.
const (
	notifyReceive  = 0xc0502100
	notifySend     = 0xc0182101
	notifySetFlags = 0x40082104
	notifySyncWake = 1
)

// notifyFilter returns a program that has the kernel ask before each system call of the numbers.
func notifyFilter(numbers []uint32) []unix.SockFilter {
	const number, arch = 0, 4 // offsets in struct seccomp_data
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arch},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: nativeArch, Jt: 1},
		{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
	}
	for _, n := range numbers { // a jump reaches 255 instructions, so each comparison has its own return
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: n, Jf: 1},
			unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_USER_NOTIF})
	}
	return append(program, unix.SockFilter{Code: unix.BPF_RET, K: unix.SECCOMP_RET_ALLOW})
}

// handover is the descriptor by which enter passes its listener, a socket.
const handover = 3

// enter executes a program under a filter, and passes the filter's listener to the process at the other end of the
// socket handover before. The program's processes inherit the filter, whatever they execute. It returns an error.
func enter(argv []string) error {
	// A thread without the filter passes the listener: nobody answers the calls of this one yet.
	listener, passed := make(chan int), make(chan error)
	go func() {
		err := unix.Sendmsg(handover, []byte{0}, unix.UnixRights(<-listener), nil, 0)
		if err == nil {
			_, err = unix.Read(handover, make([]byte, 1))
		}
		passed <- err
	}()
	runtime.LockOSThread()
	unix.CloseOnExec(handover)
	program := notifyFilter(numbers())
	text := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// A signal that a thread gets while it waits would repeat the call, which would count twice.
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&text)))
	if errno != 0 {
		return fmt.Errorf("load filter: %w", errno)
	}
	unix.CloseOnExec(int(fd))
	listener <- int(fd)
	if err := <-passed; err != nil {
		return fmt.Errorf("pass the listener: %w", err)
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// takeListener receives the listener of enter.
func takeListener(socket int) (int, error) {
	data, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, data, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("receive listener: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("receive listener: %d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return -1, fmt.Errorf("receive listener: %w", err)
	}
	_ = request(fds[0], notifySetFlags, notifySyncWake) // it is about speed
	_, err = unix.Write(socket, data)
	return fds[0], err
}

// serve answers the notifications of a listener until no process has its filter. decide returns the errno with which
// the call fails, 0 for a call that is made, and false for a process that it has killed.
func serve(listener int, decide func(notification) (unix.Errno, bool)) {
	defer func() { _ = unix.Close(listener) }()
	for {
		at := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(at, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if at[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if errno := request(listener, notifyReceive, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the thread has been killed, or had a signal
		}
		errno, lives := decide(n)
		if !lives {
			continue
		}
		a := answer{id: n.id, errno: -int32(errno)}
		if errno == 0 {
			a.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
		}
		_ = request(listener, notifySend, uintptr(unsafe.Pointer(&a))) // ENOENT: the thread has been killed
	}
}

func request(fd int, number, argument uintptr) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), number, argument)
	return errno
}
