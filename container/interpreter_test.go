package container

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/supervisor"
)

// dynamicProgram is as much of one as the kernel reads before it looks for the
// loader (elf(5)).
func dynamicProgram(t *testing.T, loader string) string {
	t.Helper()
	const start = 64 + 56
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	size := uint64(len(loader) + 1)
	segment := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: start, Filesz: size, Memsz: size, Align: 1}
	var out bytes.Buffer
	if err := errors.Join(binary.Write(&out, binary.LittleEndian, header), binary.Write(&out, binary.LittleEndian, segment)); err != nil {
		t.Fatal(err)
	}
	return out.String() + loader + "\x00"
}

// F-17: if a program exists and its interpreter does not, the error names the interpreter.
func TestMissingInterpreterIsNamed(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	for name, content := range map[string]string{
		"script": "#! /no/such/sh -e\necho\n", "bare": "#!/no/such/sh", "nested": "#!/bin/script\n",
		"dynamic": dynamicProgram(t, "/no/such/loader"), "good": "#!/bin/sh\nexec sleep 1000\n", "empty": "",
		"odd": "\x7fELF\x02\x01\x01" + strings.Repeat("\xff", 100),
	} {
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := startSleeper(t, r, testSpec(root, "good"))
	for _, tt := range []struct{ program, want string }{
		{"/bin/script", `exec /bin/script: no such file or directory: the program exists, but its interpreter "/no/such/sh" does not`},
		{"bare", `exec bare: no such file or directory: the program exists, but its interpreter "/no/such/sh" does not`},
		{"nested", `its interpreter "/no/such/sh" does not`},
		{"dynamic", `the program exists, but its interpreter "/no/such/loader" does not`},
		{"/bin/nothing", "exec /bin/nothing: no such file or directory"},
		{"odd", "exec odd: exec format error"},
	} {
		check := func(how string, err error) {
			var exec *supervisor.ExecError
			if !errors.As(err, &exec) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s of %s: %v, want %s", how, tt.program, err, tt.want)
			}
		}
		_, err := c.Exec(rootCommand(tt.program), supervisor.Stdio{})
		check("run", err)
		started := containerOf(t, r, testSpec(root, tt.program))
		_, err = started.Start(supervisor.Stdio{})
		check("start", err)
		if err := started.Destroy(); err != nil {
			t.Error(err)
		}
	}
}
