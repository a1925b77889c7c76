package boot

import (
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// Inherited are the descriptors that the daemon passed. All of them are
// close-on-exec: an app that held the ready pipe open would delay its end of file.
type Inherited struct {
	Ready *os.File               // the ready pipe, nil for none
	Stdio map[string][3]*os.File // by app name; nil for a stream that is not passed or not usable
}

// TakeDescriptors finds the descriptors that the daemon passed, from environ and from the
// process's descriptors. Call it before anything else opens descriptors.
//
// The Go runtime may already have opened 3 and 4, so TakeDescriptors looks at what a descriptor
// is: an inherited one is not close-on-exec, and the ready pipe is a pipe's write end that no
// stdio variable names. All others become close-on-exec too.
func TakeDescriptors(environ []string) Inherited {
	in := Inherited{Stdio: make(map[string][3]*os.File)}
	named := make(map[int]bool)
	for _, entry := range environ {
		app, i, fd, ok := parseStdioVariable(entry)
		if !ok || !usable(fd, i) {
			continue
		}
		files := in.Stdio[app]
		files[i] = copyDescriptor(fd, entry)
		in.Stdio[app] = files
		named[fd] = true
	}
	for _, fd := range []int{names.ReadyDescriptor, names.OldReadyDescriptor} {
		if !named[fd] && isPipe(fd) && usable(fd, 1) {
			unix.CloseOnExec(fd)
			in.Ready = os.NewFile(uintptr(fd), "ready")
			break
		}
	}
	for fd := range named {
		unix.Close(fd)
	}
	closeOthersOnExec()
	return in
}

// closeOthersOnExec marks what else the daemon has left open close-on-exec, for helpers and libcontainer.
func closeOthersOnExec() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	entries, _ := os.ReadDir("/proc/self/fd") // of a kernel before Linux 5.11; one without /proc has no pods either
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// parseStdioVariable splits NAME=FD into the app's name, the stream and the
// descriptor.
func parseStdioVariable(entry string) (app string, stream, fd int, ok bool) {
	name, value, _ := strings.Cut(entry, "=")
	name, found := strings.CutPrefix(name, names.StdioPrefix)
	fd, err := strconv.Atoi(value)
	if !found || err != nil || fd < 3 {
		return "", 0, 0, false
	}
	for i, suffix := range stdioSuffixes {
		if app, found := strings.CutSuffix(name, suffix); found && app != "" {
			return app, i, fd, true
		}
	}
	return "", 0, 0, false
}

// usable reports whether fd was inherited and can be read, for stream 0, or written, for 1 and
// 2: some versions of Kurma name the read end of a pipe for all three.
func usable(fd, stream int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC != 0 {
		return false
	}
	mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	if stream == 0 {
		return mode&unix.O_ACCMODE != unix.O_WRONLY
	}
	return mode&unix.O_ACCMODE != unix.O_RDONLY
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// copyDescriptor returns a file with a duplicate of fd, because two variables may name the same
// descriptor. It returns nil if the process has no descriptors left.
func copyDescriptor(fd int, name string) *os.File {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(dup), name)
}

// stdioSuffixes are in the order of the descriptors 0, 1 and 2.
var stdioSuffixes = [3]string{ //nolint:gochecknoglobals // a table that is only read
	names.StdinSuffix, names.StdoutSuffix, names.StderrSuffix,
}
