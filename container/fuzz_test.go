package container

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzInterpreter looks for files in whose interpreter the supervisor and debug/elf differ, or whose
// interpreter is no path.
func FuzzInterpreter(f *testing.F) {
	for _, text := range []string{
		"\x7fELF\x02\x01\x01" + strings.Repeat("\xff", 100), "\x7fELF", "", "#!/bin/sh -e\n", "#! \t/bin/sh\t-e", "#!/bin/sh\r\n", "#!\n/bin/sh", "#!" + strings.Repeat(" ", 300),
		dynamicProgram(f, "/lib64/ld-linux-x86-64.so.2"), dynamicProgram(f, strings.Repeat("x", 300)),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		head := file[:min(len(file), scriptHead)]
		if line, ok := bytes.CutPrefix(head, []byte("#!")); ok {
			checkScript(t, line)
			return
		}
		name := elfInterpreter(bytes.NewReader(file), head)
		if len(name) > unix.PathMax || strings.ContainsRune(name, 0) {
			t.Errorf("interpreter %q", name)
		}
		if want, ok := interpreterByLibrary(file); ok && name != want {
			t.Errorf("interpreter %q, debug/elf finds %q", name, want)
		}
	})
}

// checkScript compares the interpreter in a script's first line with the first word of the line.
func checkScript(t *testing.T, line []byte) {
	t.Helper()
	first, _, _ := strings.Cut(string(line), "\n")
	want := ""
	if words := strings.FieldsFunc(first, func(r rune) bool { return r == ' ' || r == '\t' }); len(words) > 0 {
		want, _, _ = strings.Cut(words[0], "\x00")
	}
	if name := scriptInterpreter(line); name != want {
		t.Errorf("interpreter %q, want %q of %q", name, want, line)
	}
}

// interpreterByLibrary returns the interpreter of a program of this machine that debug/elf can read and that is within
// the supervisor's limits. debug/elf ignores the size of a program header, where the kernel refuses another one than
// its own (load_elf_phdrs in fs/binfmt_elf.c).
func interpreterByLibrary(file []byte) (name string, ok bool) {
	program, err := elf.NewFile(bytes.NewReader(file))
	if err != nil || program.Class != elf.ELFCLASS64 || program.Data != elf.ELFDATA2LSB || len(program.Progs) > maxHeaders || binary.LittleEndian.Uint16(file[54:]) != uint16(binary.Size(elf.Prog64{})) {
		return "", false
	}
	for _, segment := range program.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, min(segment.Filesz, unix.PathMax))
		n, _ := segment.ReadAt(text, 0)
		text, _, _ = bytes.Cut(text[:n], []byte{0})
		return string(text), true
	}
	return "", true
}
