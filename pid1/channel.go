package pid1

// #include "init.h"
import "C"

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/child"
)

func memfd(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "plan")
	if _, err := file.WriteAt(content, 0); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// ask sends a start. Its answer comes by answered once the first packet is sent.
func (i *Init) ask(answered chan answer, m *C.struct_init_message, files []*os.File) error {
	i.sending.Lock()
	defer i.sending.Unlock()
	n := min(len(files), C.INIT_PACKET_FILES)
	if err := i.send(m, files[:n]); err != nil {
		return err
	}
	i.asked <- answered
	for files = files[n:]; len(files) > 0; files = files[n:] {
		n = min(len(files), C.INIT_PACKET_FILES)
		rest := &C.struct_init_message{kind: C.INIT_FILES}
		if err := i.send(rest, files[:n]); err != nil {
			if i.send(rest, nil) != nil { // init would wait for the rest
				i.channel.Close()
			}
			return err
		}
	}
	return nil
}

// say sends a message about a child, or about none.
func (i *Init) say(kind C.uint32_t, number C.int32_t) error {
	i.sending.Lock()
	defer i.sending.Unlock()
	return i.send(&C.struct_init_message{kind: kind, number: number}, nil)
}

// send sends a packet with files. The caller holds sending, or is Begin.
func (i *Init) send(m *C.struct_init_message, files []*os.File) error {
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for n, f := range files {
			fds[n] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	if err := i.channel.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, _, err := i.channel.WriteMsgUnix(unsafe.Slice((*byte)(unsafe.Pointer(m)), unsafe.Sizeof(*m)), rights, nil)
	runtime.KeepAlive(files)
	return err
}

// listen takes init's messages until the channel's end.
func (i *Init) listen() {
	defer i.endAll()
	for {
		var m C.struct_init_message
		control := make([]byte, unix.CmsgSpace(4)+unix.CmsgSpace(unix.SizeofUcred))
		n, oobn, _, _, err := i.channel.ReadMsgUnix(unsafe.Slice((*byte)(unsafe.Pointer(&m)), unsafe.Sizeof(m)), control)
		if err != nil || n != int(unsafe.Sizeof(m)) {
			return
		}
		switch m.kind {
		case C.INIT_BORN, C.INIT_BEGUN:
			i.begun <- m
		case C.INIT_STARTED:
			<-i.asked <- i.started(m, control[:oobn])
		case C.INIT_ENDED:
			i.running.Lock()
			ended := i.children[int32(m.number)]
			delete(i.children, int32(m.number))
			i.running.Unlock()
			if ended != nil {
				ended.End(syscall.WaitStatus(m.status))
			}
		}
	}
}

// endAll ends all that waits for init. The kernel closes init's end of the channel before it kills the PID namespace:
// a child that is reported as ended must have ended, so that its cgroup and its mounts can go.
func (i *Init) endAll() {
	close(i.gone)
	close(i.begun)
	if !i.closing.Load() {
		close(i.lost)
	}
	i.running.Lock()
	children := i.children
	i.children = nil
	i.running.Unlock()
	over := time.Now().Add(limit)
	for _, c := range children {
		_ = c.Kill(over) // one that does not end is in an uninterruptible wait
		c.End(syscall.WaitStatus(syscall.SIGKILL))
	}
}

func (i *Init) started(m C.struct_init_message, control []byte) answer {
	if m.error != 0 {
		call := map[C.uint32_t]string{
			C.INIT_CLONE: "clone3", C.INIT_SETNS: "setns", C.INIT_MAP: "mmap", C.INIT_RECEIVE: "recvmsg",
		}[m.call]
		return answer{err: os.NewSyscallError(call, syscall.Errno(m.error))}
	}
	pid, pidfd, err := credentials(control)
	if err != nil { // this process may have no descriptors left
		go func() { // whoever sends may wait for init, and init for this goroutine
			_ = i.say(C.INIT_KILL, m.number) // an error is the pod's end
		}()
		return answer{err: err}
	}
	c := &Child{Process: child.New(pid, pidfd), init: i, number: m.number}
	i.running.Lock()
	i.children[int32(m.number)] = c
	i.running.Unlock()
	return answer{child: c}
}

// credentials returns the child's number in this PID namespace and its pidfd (unix(7)).
func credentials(control []byte) (pid int, pidfd *os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, nil, os.NewSyscallError("recvmsg", err)
	}
	for _, m := range messages {
		if who, err := unix.ParseUnixCredentials(&m); err == nil {
			pid = int(who.Pid)
		}
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			pidfd = os.NewFile(uintptr(fds[0]), "pidfd")
		}
	}
	if pid == 0 || pidfd == nil {
		pidfd.Close()
		return 0, nil, fmt.Errorf("init's answer: %w", io.ErrUnexpectedEOF)
	}
	return pid, pidfd, nil
}
