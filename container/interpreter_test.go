package container

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// dynamicProgram is as much of one as the kernel reads before it looks for the
// loader (elf(5)).
func dynamicProgram(t testing.TB, loader string) string {
	t.Helper()
	const start = 64 + 56
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
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

// If a program is on a volume that is mounted noexec, the error says so; a file that is not executable has no such cause.
func TestAVolumeWithoutExecutionIsNamed(t *testing.T) {
	r, root, volume := newRuntime(t), busyboxRoot(t), t.TempDir()
	if err := unix.Mount("tmpfs", volume, "tmpfs", unix.MS_NOEXEC, "mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(volume, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.WriteFile(volume+"/program", []byte("#!/bin/sh"), 0o755), os.WriteFile(root+"/bin/text", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	mounted := func(args ...string) spec.Spec {
		s := testSpec(root, args...)
		s.Mounts = append(s.Mounts, spec.Mount{Source: volume, Target: "/volume"})
		return s
	}
	c, _ := startSleeper(t, r, mounted("sleep", "1000"))
	for program, want := range map[string]string{
		"/volume/program": `exec /volume/program: permission denied: the file system of "/volume/program" is mounted noexec`,
		"/bin/text":       "exec /bin/text: permission denied",
	} {
		_, err := c.Exec(rootCommand(program), spec.Stdio{})
		started := containerOf(t, r, mounted(program))
		_, startErr := started.Start(spec.Stdio{})
		if err == nil || startErr == nil || err.Error() != want || !strings.HasSuffix(startErr.Error(), want) {
			t.Errorf("%s: run: %v, start: %v, want %s", program, err, startErr, want)
		}
		if err := started.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

// If a program exists and its interpreter does not, the error names the interpreter.
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
			var exec *spec.ExecError
			if !errors.As(err, &exec) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s of %s: %v, want %s", how, tt.program, err, tt.want)
			}
		}
		_, err := c.Exec(rootCommand(tt.program), spec.Stdio{})
		check("run", err)
		started := containerOf(t, r, testSpec(root, tt.program))
		_, err = started.Start(spec.Stdio{})
		check("start", err)
		if err := started.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

// scriptOfTheKernel returns a file of /proc with the text of a script: this thread's name.
func scriptOfTheKernel(t *testing.T) string {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&[]byte("#!/no/kmsg\x00")[0])), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/self/task/%d/comm", unix.Gettid())
}

// The supervisor does not read what the kernel makes up: a link to /proc/kmsg as a script's
// interpreter would take the host's kernel log.
func TestInterpreterInProcIsNotRead(t *testing.T) {
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	dir := t.TempDir()
	link, script := filepath.Join(dir, "p"), filepath.Join(dir, "script")
	if err := errors.Join(os.Symlink(scriptOfTheKernel(t), link), os.WriteFile(script, []byte("#!"+link+"\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	if name := missingInterpreter(root, "/", script); name != "" {
		t.Errorf("interpreter %q was read from %s", name, link)
	}
}

// A relative interpreter is resolved from the working directory, as execve(2) does.
func TestARelativeInterpreterIsFoundFromTheWorkingDirectory(t *testing.T) {
	dir := t.TempDir()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	err = errors.Join(
		os.MkdirAll(filepath.Join(dir, "work/bin"), 0o755), os.MkdirAll(filepath.Join(dir, "deep/er"), 0o755),
		os.Symlink("/deep/er", filepath.Join(dir, "link")),
		os.WriteFile(filepath.Join(dir, "work/bin/sh"), nil, 0o755), os.WriteFile(filepath.Join(dir, "top"), nil, 0o755),
		os.WriteFile(filepath.Join(dir, "deep/there"), nil, 0o755),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ dir, interpreter, want string }{
		{"/work", "bin/sh", ""},
		{"work", "bin/sh", ""},
		{"/", "bin/sh", "bin/sh"},
		{"/work", "top", "top"},
		{"/", "top", ""},
		{"/work", "/top", ""},
		{"/link", "../there", ""},
	} {
		if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!"+tt.interpreter+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := missingInterpreter(root, tt.dir, "/script"); got != tt.want {
			t.Errorf("#!%s in %s: %q is missing, want %q", tt.interpreter, tt.dir, got, tt.want)
		}
	}
}
