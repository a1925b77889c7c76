// Package identity resolves the user and group of a process by appc's rules, inside the root of
// its container. It needs neither cgo nor a runtime's library.
package identity

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// Max is the largest user or group number; the one above means "no change"
// to setresuid(2).
const Max = 1<<32 - 2

// maxDatabase limits how much of a passwd or group file is read, in bytes.
const maxDatabase = 16 << 20

// Resolve applies appc's rules (aci.md, user and group) inside root, the container's assembled
// file system. It looks a name up in /etc/passwd or /etc/group; if it is not there, the name must
// be a decimal number. A value that begins with "/" means the owner or group of that file.
// Symbolic links are resolved as for a process in the container, and cannot lead out of root.
// "root" is 0 even if the image has no passwd file.
func Resolve(root *os.File, user, group string) (uid, gid uint32, err error) {
	uid, err = resolve(root, "user", user, "etc/passwd", func(st *syscall.Stat_t) uint32 { return st.Uid })
	if err != nil {
		return 0, 0, err
	}
	gid, err = resolve(root, "group", group, "etc/group", func(st *syscall.Stat_t) uint32 { return st.Gid })
	if err != nil {
		return 0, 0, err
	}
	return uid, gid, nil
}

func resolve(root *os.File, kind, value, database string, owner func(*syscall.Stat_t) uint32) (uint32, error) {
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
	return 0, fmt.Errorf("%s %q is neither in /%s nor a number from 0 to %d", kind, value, database, uint32(Max))
}

func resolveFile(root *os.File, kind, value string, owner func(*syscall.Stat_t) uint32) (uint32, error) {
	f, err := pathrs.OpenatInRoot(root, value)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", kind, value, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", kind, value, err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s %q: no owner known", kind, value)
	}
	return owner(st), nil
}

// lookUp finds name in a passwd or group file: the first line whose first field is the name and
// whose third field is a number. It skips all other lines. A file that does not exist, is not a
// regular file, or is in /proc, has no entries.
func lookUp(root *os.File, database, name string) (id uint32, found bool, err error) {
	path, err := pathrs.OpenatInRoot(root, database)
	if err != nil {
		return 0, false, nil //nolint:nilerr // an image without the file has no names
	}
	defer path.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(path.Fd()), &fs); err != nil || fs.Type == unix.PROC_SUPER_MAGIC {
		return 0, false, err // files of /proc report that they are regular, and reading kmsg consumes it
	}
	if info, err := path.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0, false, err
	}
	f, err := pathrs.Reopen(path, os.O_RDONLY)
	if err != nil {
		return 0, false, fmt.Errorf("read /%s: %w", database, err)
	}
	defer f.Close()
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

// parseID reads a number: decimal digits and nothing else.
func parseID(s string) (uint32, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return uint32(n), err == nil && n <= Max
}
