// Package identity resolves the user and group of a process by appc's rules, inside the root of
// its container. It needs neither cgo nor a runtime's library.
package identity

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// maxDatabase limits how much of a passwd or group file is read, in bytes.
const maxDatabase = 16 << 20

// maxLine is how much of a line of such a file is looked at, in bytes. A name and a number fit;
// a group's members may be cut off.
const maxLine = 4 << 10

// Resolve applies appc's rules (aci.md, user and group) inside root, the container's assembled
// file system. It looks a name up in /etc/passwd or /etc/group; if it is not there, the name must
// be a decimal number. A value that begins with "/" means the owner or group of that file.
// Symbolic links are resolved as for a process in the container, and cannot lead out of root.
// "root" is 0 even if the image has no passwd file. With numericIDs a decimal number is not looked up.
// users is the user namespace of the process, nil for the caller's: an ID outside of it is an error.
func Resolve(
	root *os.File, user, group string, numericIDs bool, users *spec.UserNamespace,
) (uid, gid uint32, err error) {
	r := resolver{root, numericIDs, users}
	uid, err = r.resolve("user", user, "etc/passwd", func(st *syscall.Stat_t) uint32 { return st.Uid })
	if err != nil {
		return 0, 0, err
	}
	gid, err = r.resolve("group", group, "etc/group", func(st *syscall.Stat_t) uint32 { return st.Gid })
	if err != nil {
		return 0, 0, err
	}
	return uid, gid, nil
}

// Of is Resolve for the user and group of a process in a container with its file system at the path root;
// those of a process with Root are 0. It also refuses supplementary groups that are no IDs, and adds HOME to the
// process's environment as WithHome does.
func Of(root string, p *spec.Process) (uid, gid uint32, err error) {
	if err := CheckGroups(p.SupplementaryGID); err != nil {
		return 0, 0, err
	}
	folder, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return 0, 0, err
	}
	defer folder.Close()
	if !p.Root {
		uid, gid, err = Resolve(folder, p.User, p.Group, p.NumericIDs, nil)
	}
	p.Env = WithHome(folder, uid, p.Env)
	return uid, gid, err
}

// WithHome returns an environment with HOME. If env lacks it, HOME is the user's home folder by /etc/passwd in root:
// that of the first line with the user's number. It is "/" if the file has no such line or cannot be read, or the line
// names no folder.
func WithHome(root *os.File, uid uint32, env []string) []string {
	const variable = "HOME="
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, variable) }) {
		return env
	}
	return append(slices.Clip(env), variable+cmp.Or(home(root, uid), "/"))
}

// CheckGroups refuses supplementary groups that are no IDs.
func CheckGroups(groups []int) error {
	for _, g := range groups {
		if g < 0 || g > spec.MaxID {
			return fmt.Errorf("supplementary group %d is not a number from 0 to %d", g, uint32(spec.MaxID))
		}
	}
	return nil
}

type resolver struct {
	root       *os.File
	numericIDs bool
	users      *spec.UserNamespace
}

func (r resolver) resolve(kind, value, database string, owner func(*syscall.Stat_t) uint32) (uint32, error) {
	if value == "" {
		return 0, fmt.Errorf("%s is empty", kind)
	}
	if strings.HasPrefix(value, "/") {
		id, err := resolveFile(r.root, kind, value, owner)
		if err != nil {
			return 0, err
		}
		inside, ok := r.users.Inside(id)
		if !ok {
			return 0, fmt.Errorf("%s %q: the owner is outside the %d IDs of the pod's user namespace", kind, value, r.users.Size)
		}
		return inside, nil
	}
	id, err := r.resolveName(kind, value, database)
	if _, ok := r.users.Outside(id); err == nil && !ok {
		return 0, fmt.Errorf("%s %q is %d: outside the %d IDs of the pod's user namespace", kind, value, id, r.users.Size)
	}
	return id, err
}

func (r resolver) resolveName(kind, value, database string) (uint32, error) {
	number, isNumber := parseID(value)
	if isNumber && r.numericIDs {
		return number, nil
	}
	if id, found, err := lookUp(r.root, database, value); err != nil || found {
		return id, err
	}
	if isNumber {
		return number, nil
	}
	if value == "root" {
		return 0, nil
	}
	return 0, fmt.Errorf("%s %q is neither in /%s nor a number from 0 to %d", kind, value, database, uint32(spec.MaxID))
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
// regular file, or is in /proc or /sys, has no entries.
func lookUp(root *os.File, database, name string) (id uint32, found bool, err error) {
	f, err := OpenRegular(root, database)
	for _, none := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, errNotRegular} {
		if errors.Is(err, none) {
			return 0, false, nil //nolint:nilerr // an image without the file has no names
		}
	}
	if err != nil {
		return 0, false, fmt.Errorf("read /%s: %w", database, err)
	}
	defer f.Close()
	id, found = scan(f, name)
	return id, found, nil
}

// home returns the user's home folder, "" for none.
func home(root *os.File, uid uint32) (home string) {
	f, err := OpenRegular(root, "etc/passwd")
	if err != nil {
		return ""
	}
	defer f.Close()
	eachLine(f, func(line []byte, whole bool) bool {
		id, ok := idInLine(line, whole)
		if !ok || id != uid {
			return false
		}
		if fields := bytes.Split(line, []byte(":")); len(fields) > 6 || whole && len(fields) == 6 {
			home = string(fields[5])
		}
		return true
	})
	return home
}

// scan finds name in the text of a passwd or group file.
func scan(text io.Reader, name string) (id uint32, found bool) {
	eachLine(text, func(line []byte, whole bool) bool {
		if first, _, _ := bytes.Cut(line, []byte(":")); string(first) != name {
			return false
		}
		number, ok := idInLine(line, whole)
		if ok {
			id, found = number, true
		}
		return ok
	})
	return id, found
}

// eachLine calls f with the lines of a text until f returns true. It takes maxLine bytes of memory, whatever the text:
// the file is the image's. Where whole is false, line is the start of a line.
func eachLine(text io.Reader, f func(line []byte, whole bool) bool) {
	limited := &io.LimitedReader{R: text, N: maxDatabase}
	for lines := bufio.NewReaderSize(limited, maxLine); ; {
		line, err := lines.ReadSlice('\n')
		whole := err == nil || errors.Is(err, io.EOF) && limited.N > 0
		if whole {
			line = bytes.TrimRight(line, "\r\n")
		}
		if f(line, whole) {
			return
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// idInLine returns the number in a line of a passwd or group file. Where whole is false, line is the start of a line;
// the number counts if all of it is there.
func idInLine(line []byte, whole bool) (id uint32, found bool) {
	_, rest, _ := bytes.Cut(line, []byte(":"))
	_, rest, _ = bytes.Cut(rest, []byte(":")) // the password
	number, _, ended := bytes.Cut(rest, []byte(":"))
	if !ended && !whole {
		return 0, false
	}
	return parseID(string(number))
}

// parseID reads a number: decimal digits and nothing else.
func parseID(s string) (uint32, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return uint32(n), err == nil && n <= spec.MaxID
}
