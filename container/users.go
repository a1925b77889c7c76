package container

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// maxID is the largest user or group number; the one above means "no change"
// to setresuid(2).
const maxID = 1<<32 - 2

// maxDatabase is how much of a passwd or group file is read, in bytes.
const maxDatabase = 16 << 20

// identity is who a process runs as.
type identity struct {
	uid, gid uint32
}

// resolveIdentity applies appc's rules (aci.md, user and group) within root,
// the container's assembled file system: the name is looked up in /etc/passwd or
// /etc/group first, then taken as a decimal number; a value that begins with
// "/" stands for the owner or group of that file. Symbolic links cannot lead
// out of root. "root" is 0 even where the image has no passwd file.
func resolveIdentity(root *os.Root, user, group string) (identity, error) {
	uid, err := resolve(root, "user", user, "etc/passwd", func(st *syscall.Stat_t) uint32 { return st.Uid })
	if err != nil {
		return identity{}, err
	}
	gid, err := resolve(root, "group", group, "etc/group", func(st *syscall.Stat_t) uint32 { return st.Gid })
	if err != nil {
		return identity{}, err
	}
	return identity{uid: uid, gid: gid}, nil
}

func resolve(root *os.Root, kind, value, database string, owner func(*syscall.Stat_t) uint32) (uint32, error) {
	if value == "" {
		return 0, fmt.Errorf("%s is empty", kind)
	}
	if strings.HasPrefix(value, "/") {
		return resolveFile(root, kind, value, owner)
	}
	if id, found, err := lookUp(root, database, value); err != nil || found {
		return id, err
	}
	if id, ok := parseID(value); ok {
		return id, nil
	}
	if value == "root" {
		return 0, nil
	}
	return 0, fmt.Errorf("%s %q is neither in /%s nor a number from 0 to %d", kind, value, database, uint32(maxID))
}

func resolveFile(root *os.Root, kind, value string, owner func(*syscall.Stat_t) uint32) (uint32, error) {
	name := strings.Trim(value, "/")
	if name == "" {
		name = "."
	}
	info, err := root.Stat(name)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", kind, value, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s %q: no owner known", kind, value)
	}
	return owner(st), nil
}

// lookUp finds name in a passwd or group file: the first line whose first
// field is the name and whose third is a number. Any other line is skipped. A file that
// is not there, or is no regular file, has no entries.
func lookUp(root *os.Root, database, name string) (id uint32, found bool, err error) {
	// Without O_NONBLOCK a FIFO of that name would hang us.
	f, err := root.OpenFile(database, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, false, nil //nolint:nilerr // an image without the file has no names
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0, false, err
	}
	for lines := bufio.NewReader(io.LimitReader(f, maxDatabase)); ; {
		line, readErr := lines.ReadString('\n')
		fields := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(fields) >= 3 && fields[0] == name {
			if id, ok := parseID(fields[2]); ok {
				return id, true, nil
			}
		}
		if readErr != nil {
			return 0, false, nil
		}
	}
}

// parseID reads a number as appc means it: decimal digits and nothing else.
func parseID(s string) (uint32, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return uint32(n), err == nil && n <= maxID
}

// openRoot opens the root directory of a running process, with everything
// that is mounted in it. The caller closes it.
func openRoot(pid int) (*os.Root, error) {
	return os.OpenRoot("/proc/" + strconv.Itoa(pid) + "/root")
}
