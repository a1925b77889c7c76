package sandboxes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// A sandbox has a PID namespace once a container asks for it. Such a namespace lives as long as its process 1, the
// holder, and needs it: it collects what has no parent there any more. In the sandbox's folder
//
//	pid     pins the namespace
//	holder  has the holder's number in the host's namespace
//
// A holder that no server confirms ends: its server was killed before the files were there.

// HoldPIDsCommand is the argument that makes the server's program a holder, see Hold.
const HoldPIDsCommand = "hold-pids"

const (
	pinOfPIDs  = "pid"
	holderFile = "holder"
)

// nobody is the user and group of a holder.
const nobody = 65534

// Hold is the main function of a holder, in a mount namespace of its own. It writes a byte when it has nothing that an
// app in its namespace could want, and returns an error if it is not confirmed by a byte then.
func Hold(confirmation io.Reader, confined io.Writer) error {
	err := leaveHost()
	ignoreAll()
	if err == nil {
		_, err = confined.Write([]byte{1})
	}
	if err == nil {
		_, err = io.ReadFull(confirmation, make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("hold PID namespace: %w", err)
	}
	for {
		_ = unix.Pause()
	}
}

// leaveHost gives up the host's files and all privileges: an app with CAP_SYS_PTRACE may become this process.
func leaveHost() error {
	const empty = "/proc" // every machine has it
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate mounts: %w", err)
	}
	const readOnly = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("tmpfs", empty, "tmpfs", readOnly, "size=4k"); err != nil {
		return fmt.Errorf("mount an empty root: %w", err)
	}
	if err := unix.Chdir(empty); err != nil {
		return os.NewSyscallError("chdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil { // the old root lies on top
		return fmt.Errorf("detach the host's root: %w", err)
	}
	// Without user 0 a process has no capabilities, and is not dumpable. These calls are for all threads.
	return errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody),
		syscall.Setresuid(nobody, nobody, nobody))
}

// ignoreAll ignores all signals: the namespace's processes must not end the holder, and the kernel collects the
// children of a process that ignores SIGCHLD. signal.Ignore leaves the Go runtime's handlers of faults, which end the
// process for a signal that rt_sigqueueinfo(2) has sent; a true fault ends a process that ignores its signal. It must
// be called after the last change of the user: the Go runtime changes all threads by a signal.
func ignoreAll() {
	const last, maskSize, ignore = 64, 8, 1 // SIG_IGN
	action := [5]uintptr{ignore}            // the handler first, as the kernel has it (rt_sigaction(2))
	for s := range uintptr(last) {          // which fails for SIGKILL and SIGSTOP alone
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, s+1, uintptr(unsafe.Pointer(&action)), 0, maskSize, 0, 0)
	}
}

// PIDs returns the file that pins the PID namespace of the sandbox in that folder. It makes the namespace if there is
// none. One call at a time may be for a sandbox.
func (m *Maker) PIDs(dir string) (string, error) {
	pin := filepath.Join(dir, pinOfPIDs)
	if pid, err := holderOf(dir); pid != 0 || err != nil {
		return pin, err
	}
	if err := releasePIDs(dir); err != nil {
		return "", err
	}
	if err := makePIDs(dir, pin); err != nil {
		return "", errors.Join(fmt.Errorf("make PID namespace of sandbox: %w", err), releasePIDs(dir))
	}
	return pin, nil
}

// holderLimit is how long a holder may take to give up the host's files.
const holderLimit = 30 * time.Second

func makePIDs(dir, path string) error {
	cmd := exec.Command("/proc/self/exe", HoldPIDsCommand)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Setsid: true}
	confirmation, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer confirmation.Close()
	confined, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	defer confined.Close()
	var message bytes.Buffer
	cmd.Stderr = &message
	if err := cmd.Start(); err != nil {
		return err
	}
	late := time.AfterFunc(holderLimit, func() { _ = cmd.Process.Kill() })
	_, err = confined.Read(make([]byte, 1))
	late.Stop()
	if err != nil {
		_ = cmd.Wait()
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(message.Bytes()))
	}
	go func() { _ = cmd.Wait() }() // the holder outlives the server; this one collects it
	if err := networks.Pin(fmt.Sprintf("/proc/%d/ns/pid", cmd.Process.Pid), path); err != nil {
		return fmt.Errorf("pin namespace: %w", err)
	}
	number := strconv.Itoa(cmd.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir, holderFile), []byte(number), 0o600); err != nil {
		return err
	}
	_, err = confirmation.Write([]byte{1})
	return err
}

// holderOf returns the number of the sandbox's holder, 0 for none. Another process may have the number by now, but not
// the namespace. An error says that the holder could not be looked at, and may live.
func holderOf(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, holderFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for holder of PID namespace: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, nil // its server was killed before it was confirmed
	}
	pinned, err := os.Stat(filepath.Join(dir, pinOfPIDs))
	var own os.FileInfo
	if err == nil {
		own, err = os.Stat(fmt.Sprintf("/proc/%d/ns/pid", pid))
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for holder of PID namespace: %w", err)
	}
	if !os.SameFile(pinned, own) {
		return 0, nil
	}
	return pid, nil
}

// releasePIDs ends the sandbox's PID namespace, with all processes in it. It may be repeated.
func releasePIDs(dir string) error {
	pid, err := holderOf(dir)
	if err != nil {
		return err
	}
	if pid != 0 {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end PID namespace of sandbox: %w", err)
		}
	}
	return unmount(filepath.Join(dir, pinOfPIDs))
}
