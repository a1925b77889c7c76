package inject

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// call is a system call that changes something, or that takes a resource that can be used up.
type call struct {
	name   string
	number uint32
	errnos []unix.Errno // with which the call may fail, by its man page
	// flags is the place of open's flags: a call that opens for reading has another name, and only lacks descriptors.
	flags int
	file  bool                    // the call counts if its first argument is a regular file
	own   func(notification) bool // nil, or whether the call counts
}

func opens() []unix.Errno       { return []unix.Errno{unix.ENOSPC} }
func full() []unix.Errno        { return []unix.Errno{unix.ENOSPC} }
func broken() []unix.Errno      { return []unix.Errno{unix.EIO} }
func memory() []unix.Errno      { return []unix.Errno{unix.ENOMEM} }
func forks() []unix.Errno       { return []unix.Errno{unix.EAGAIN} }
func denied() []unix.Errno      { return []unix.Errno{unix.EPERM} }
func descriptors() []unix.Errno { return []unix.Errno{unix.EMFILE} }
func busy() []unix.Errno        { return []unix.Errno{unix.EBUSY} }

// calls lists the system calls at which a fault is injected. Threads are left out, as the Go runtime ends a program
// that cannot have one; so are read(2) and close(2), which change nothing, and writes to pipes and sockets.
func calls() []call { return slices.Concat(oldCalls(), fileCalls(), mountCalls(), processCalls()) }

// fileCalls are those of files.
func fileCalls() []call {
	return []call{
		{name: "openat", number: unix.SYS_OPENAT, flags: 2, errnos: opens()},
		{name: "openat2", number: unix.SYS_OPENAT2, flags: -1, errnos: opens()},
		{name: "renameat", number: unix.SYS_RENAMEAT, errnos: full()},
		{name: "renameat2", number: unix.SYS_RENAMEAT2, errnos: full()},
		{name: "unlinkat", number: unix.SYS_UNLINKAT, errnos: broken()},
		{name: "mkdirat", number: unix.SYS_MKDIRAT, errnos: full()},
		{name: "linkat", number: unix.SYS_LINKAT, errnos: full()},
		{name: "symlinkat", number: unix.SYS_SYMLINKAT, errnos: full()},
		{name: "mknodat", number: unix.SYS_MKNODAT, errnos: full()},
		{name: "write", number: unix.SYS_WRITE, file: true, errnos: full()},
		{name: "pwrite64", number: unix.SYS_PWRITE64, file: true, errnos: full()},
		{name: "writev", number: unix.SYS_WRITEV, file: true, errnos: full()},
		{name: "pwritev", number: unix.SYS_PWRITEV, file: true, errnos: full()},
		{name: "copy_file_range", number: unix.SYS_COPY_FILE_RANGE, errnos: full()},
		{name: "fsync", number: unix.SYS_FSYNC, errnos: broken()},
		{name: "fdatasync", number: unix.SYS_FDATASYNC, errnos: broken()},
		{name: "syncfs", number: unix.SYS_SYNCFS, errnos: broken()},
		{name: "ftruncate", number: unix.SYS_FTRUNCATE, errnos: broken()},
		{name: "truncate", number: unix.SYS_TRUNCATE, errnos: broken()},
		{name: "fallocate", number: unix.SYS_FALLOCATE, errnos: full()},
		{name: "fchmod", number: unix.SYS_FCHMOD, errnos: broken()},
		{name: "fchmodat", number: unix.SYS_FCHMODAT, errnos: broken()},
		{name: "fchown", number: unix.SYS_FCHOWN, errnos: broken()},
		{name: "fchownat", number: unix.SYS_FCHOWNAT, errnos: broken()},
		{name: "utimensat", number: unix.SYS_UTIMENSAT, errnos: broken()},
		{name: "setxattr", number: unix.SYS_SETXATTR, errnos: full()},
		{name: "lsetxattr", number: unix.SYS_LSETXATTR, errnos: full()},
		{name: "fsetxattr", number: unix.SYS_FSETXATTR, errnos: full()},
	}
}

// mountCalls are those of mounts.
func mountCalls() []call {
	return []call{
		{name: "mount", number: unix.SYS_MOUNT, errnos: memory()},
		{name: "umount2", number: unix.SYS_UMOUNT2, errnos: busy()},
		{name: "open_tree", number: unix.SYS_OPEN_TREE, errnos: memory()},
		{name: "move_mount", number: unix.SYS_MOVE_MOUNT, errnos: memory()},
		{name: "fsopen", number: unix.SYS_FSOPEN, errnos: memory()},
		{name: "fsconfig", number: unix.SYS_FSCONFIG, errnos: memory()},
		{name: "fsmount", number: unix.SYS_FSMOUNT, errnos: memory()},
		{name: "mount_setattr", number: unix.SYS_MOUNT_SETATTR, errnos: memory()},
		{name: "pivot_root", number: unix.SYS_PIVOT_ROOT, errnos: busy()},
		{name: "chroot", number: unix.SYS_CHROOT, errnos: broken()},
	}
}

// processCalls are those of processes, namespaces, sockets and the like.
func processCalls() []call {
	return []call{
		{name: "clone", number: unix.SYS_CLONE, errnos: forks(), own: clones},
		{name: "clone3", number: unix.SYS_CLONE3, errnos: forks(), own: clones3},
		{name: "execve", number: unix.SYS_EXECVE, errnos: memory()},
		{name: "execveat", number: unix.SYS_EXECVEAT, errnos: memory()},
		{name: "setns", number: unix.SYS_SETNS, errnos: memory()},
		{name: "unshare", number: unix.SYS_UNSHARE, errnos: full()},
		{name: "pidfd_open", number: unix.SYS_PIDFD_OPEN, errnos: descriptors()},
		{name: "pidfd_send_signal", number: unix.SYS_PIDFD_SEND_SIGNAL, errnos: denied()},
		{name: "kill", number: unix.SYS_KILL, errnos: denied()},
		{name: "flock", number: unix.SYS_FLOCK, errnos: []unix.Errno{unix.ENOLCK}},
		{name: "socket", number: unix.SYS_SOCKET, errnos: descriptors()},
		{name: "socketpair", number: unix.SYS_SOCKETPAIR, errnos: descriptors()},
		{name: "bind", number: unix.SYS_BIND, errnos: memory()},
		{name: "listen", number: unix.SYS_LISTEN, errnos: []unix.Errno{unix.EADDRINUSE}},
		{name: "connect", number: unix.SYS_CONNECT, errnos: []unix.Errno{unix.ECONNREFUSED}},
		{name: "sendmsg", number: unix.SYS_SENDMSG, errnos: []unix.Errno{unix.ENOBUFS}},
		{name: "sendto", number: unix.SYS_SENDTO, errnos: []unix.Errno{unix.ENOBUFS}},
		{name: "pipe2", number: unix.SYS_PIPE2, errnos: descriptors()},
		{name: "memfd_create", number: unix.SYS_MEMFD_CREATE, errnos: descriptors()},
		{name: "inotify_init1", number: unix.SYS_INOTIFY_INIT1, errnos: descriptors()},
		{name: "inotify_add_watch", number: unix.SYS_INOTIFY_ADD_WATCH, errnos: full()},
		{name: "sethostname", number: unix.SYS_SETHOSTNAME, errnos: denied()},
		{name: "capset", number: unix.SYS_CAPSET, errnos: denied()},
		{name: "setgroups", number: unix.SYS_SETGROUPS, errnos: memory()},
		{name: "bpf", number: unix.SYS_BPF, errnos: memory()},
		{name: "keyctl", number: unix.SYS_KEYCTL, errnos: memory()},
	}
}

// reading is what the name of a call has that opens a file for reading.
const reading = "-read"

func numbers() []uint32 {
	var all []uint32
	for _, c := range calls() {
		all = append(all, c.number)
	}
	return all
}

// nameOf returns the name by which a call counts, "" for none.
func (c call) nameOf(n notification) string {
	switch {
	case c.flags != 0:
		flags := uint64(0)
		if c.flags > 0 {
			flags = n.args[c.flags]
		} else {
			flags, _ = memoryWord(n, 2) // struct open_how of openat2(2) begins with them
		}
		if flags&(unix.O_CREAT|unix.O_TRUNC|unix.O_ACCMODE) == 0 || flags&unix.O_PATH != 0 {
			return c.name + reading
		}
	case c.file && !isFile(n):
		return ""
	case c.own != nil && !c.own(n):
		return ""
	}
	return c.name
}

// clones tells a process from a thread.
func clones(n notification) bool { return n.args[0]&unix.CLONE_THREAD == 0 }

// clones3 is clones for struct clone_args, which begins with the flags.
func clones3(n notification) bool {
	flags, err := memoryWord(n, 0)
	return err == nil && flags&unix.CLONE_THREAD == 0
}

// memoryWord reads the first eight bytes of what an argument points at.
func memoryWord(n notification, argument int) (uint64, error) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.tid))
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	word := make([]byte, 8)
	if _, err := memory.ReadAt(word, int64(n.args[argument])); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(word), nil
}

// memoryText returns the text at which an argument points, "" if it does not.
func memoryText(n notification, argument int) string {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.tid))
	if err != nil || n.args[argument] < 1<<12 || n.args[argument] > 1<<62 {
		return ""
	}
	defer memory.Close()
	data := make([]byte, 200)
	got, _ := memory.ReadAt(data, int64(n.args[argument])) // a page may end before
	text, _, _ := strings.Cut(string(data[:max(got, 0)]), "\x00")
	if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		return ""
	}
	return text
}

// isFile reports whether the first argument is the descriptor of a regular file.
func isFile(n notification) bool {
	path := fmt.Sprintf("/proc/%d/fd/%d", n.tid, int32(n.args[0]))
	if link, err := os.Readlink(path); err != nil || !strings.HasPrefix(link, "/") {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeType == 0
}
