package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"kurma.io/stager/container/identity"
	"kurma.io/stager/spec"
)

// unexplained reports whether the error of execve(2) has several causes: the kernel did not find the program, or the
// interpreter that the program names; nobody may execute the program, or none of its file system.
func unexplained(err error) bool {
	var exec *spec.ExecError
	return errors.As(err, &exec) && (errors.Is(exec.Errno, unix.ENOENT) || errors.Is(exec.Errno, unix.EACCES))
}

// explain adds the cause to an error that is unexplained, if the program exists: the name of the missing interpreter of
// a script or a dynamically linked program, or that the program's file system is mounted noexec.
func explain(err error, root *os.File, program, dir string, env []string) error {
	for _, candidate := range spec.Candidates(program, env) {
		if errors.Is(err, unix.EACCES) {
			if path := from(dir, candidate); isOnNoexec(root, path) {
				return fmt.Errorf("%w: the file system of %q is mounted noexec", err, path)
			}
			continue
		}
		if name := missingInterpreter(root, dir, candidate); name != "" {
			return fmt.Errorf("%w: the program exists, but its interpreter %q does not", err, name)
		}
	}
	return err
}

// isOnNoexec reports whether a file in root is on a file system that is mounted noexec.
func isOnNoexec(root *os.File, path string) bool {
	f, err := identity.OpenRegular(root, path)
	if err != nil {
		return false
	}
	defer f.Close()
	var fs unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0
}

// missingInterpreter follows a file in root to its interpreter, and that file to its own, and
// returns the first interpreter that does not exist, or "". The kernel resolves relative names from
// the working directory dir.
func missingInterpreter(root *os.File, dir, path string) string {
	const most = 5 // the kernel's limit (exec_binprm in fs/exec.c)
	for range most {
		name := interpreterOf(root, from(dir, path))
		if name == "" {
			return ""
		}
		if at, err := pathrs.OpenatInRoot(root, from(dir, name)); err != nil {
			return name
		} else if err := at.Close(); err != nil {
			return ""
		}
		path = name
	}
	return ""
}

// from returns a path in a container as seen from the folder dir. It does not clean the path: what
// ".." leads to depends on symbolic links.
func from(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + dir + "/" + path
}

// interpreterOf returns the interpreter that a file in root names, or "".
func interpreterOf(root *os.File, path string) string {
	f, err := identity.OpenRegular(root, path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, scriptHead)
	n, _ := io.ReadFull(f, head)
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		return scriptInterpreter(line)
	}
	return elfInterpreter(f, head[:n])
}

// scriptHead is how much the kernel reads of a script, in bytes (BINPRM_BUF_SIZE).
const scriptHead = 256

// scriptInterpreter returns the interpreter in a script's first line, without its "#!", as
// load_script in fs/binfmt_script.c finds it.
func scriptInterpreter(line []byte) string {
	line, _, _ = bytes.Cut(line, []byte("\n"))
	line = bytes.TrimLeft(line, " \t")
	if end := bytes.IndexAny(line, " \t\x00"); end >= 0 {
		line = line[:end]
	}
	return string(line)
}

// maxHeaders limits the program headers that are read.
const maxHeaders = 64

// elfInterpreter returns the contents of the segment of type PT_INTERP (elf(5)) in a program of
// the machine's word size and byte order. The file is untrusted, and debug/elf would parse more
// of it than the supervisor should.
func elfInterpreter(f io.ReaderAt, head []byte) string {
	const (
		class64, interp   = 2, 3
		size              = 56 // of a program header
		phoff, entry, num = 32, 54, 56
	)
	if len(head) < 64 || string(head[:4]) != "\x7fELF" || head[4] != class64 {
		return ""
	}
	order := binary.NativeEndian
	if order.Uint16(head[entry:]) != size {
		return ""
	}
	headers := make([]byte, size*min(int(order.Uint16(head[num:])), maxHeaders))
	n, _ := f.ReadAt(headers, int64(order.Uint64(head[phoff:])))
	for ; n >= size; headers, n = headers[size:], n-size {
		if order.Uint32(headers) != interp {
			continue
		}
		name := make([]byte, min(order.Uint64(headers[32:]), unix.PathMax))
		got, _ := f.ReadAt(name, int64(order.Uint64(headers[8:])))
		text, _, _ := bytes.Cut(name[:got], []byte{0})
		return string(text)
	}
	return ""
}
