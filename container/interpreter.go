package container

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

// explain adds to the error of a program that is there and yet was not found
// what the kernel has not found: the interpreter that a script or a dynamically
// linked program names (execve(2), ENOENT).
func explain(err error, root *os.File, program, dir string, env []string) error {
	var exec *supervisor.ExecError
	if !errors.As(err, &exec) || !errors.Is(exec.Errno, unix.ENOENT) {
		return err
	}
	for _, candidate := range candidates(program, env) {
		if !filepath.IsAbs(candidate) {
			candidate = filepath.Join("/", dir, candidate)
		}
		if name := missingInterpreter(root, candidate); name != "" {
			return fmt.Errorf("%w: the program is there, the interpreter %q that it needs is not", err, name)
		}
	}
	return err
}

// missingInterpreter follows a file in root to its interpreter, and that to its own,
// to one that is not there.
func missingInterpreter(root *os.File, path string) string {
	const most = 5 // of the kernel, scripts of scripts (exec_binprm in fs/exec.c)
	for range most {
		name := interpreterOf(root, path)
		if name == "" {
			return ""
		}
		if at, err := pathrs.OpenatInRoot(root, name); err != nil {
			return name
		} else if err := at.Close(); err != nil {
			return ""
		}
		path = name
	}
	return ""
}

// interpreterOf reads whom a file in root names to run it, "" for nobody.
func interpreterOf(root *os.File, path string) string {
	at, err := pathrs.OpenatInRoot(root, path)
	if err != nil {
		return ""
	}
	defer at.Close()
	if info, err := at.Stat(); err != nil || !info.Mode().IsRegular() {
		return "" // to open a FIFO is to wait
	}
	f, err := pathrs.Reopen(at, os.O_RDONLY)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256) // of a script the kernel reads no more (BINPRM_BUF_SIZE)
	n, _ := io.ReadFull(f, head)
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		name, _, _ := strings.Cut(strings.TrimLeft(string(line), " \t"), " ")
		return strings.TrimRight(name, "\t\r")
	}
	return elfInterpreter(f, head[:n])
}

// elfInterpreter finds the segment of type PT_INTERP (elf(5)) in a program of
// the machine's own word size and byte order. Whatever else the file holds is a stranger's:
// debug/elf reads more of it than PID 1 should.
func elfInterpreter(f io.ReaderAt, head []byte) string {
	const (
		class64, interp   = 2, 3
		size              = 56 // of a program header
		phoff, entry, num = 32, 54, 56
		most              = 64
	)
	if len(head) < 64 || string(head[:4]) != "\x7fELF" || head[4] != class64 {
		return ""
	}
	order := binary.NativeEndian
	if order.Uint16(head[entry:]) != size {
		return ""
	}
	headers := make([]byte, size*min(int(order.Uint16(head[num:])), most))
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
