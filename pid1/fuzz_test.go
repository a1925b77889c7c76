package pid1

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// compileFed compiles init with sanitizers and a main function that feeds it with packets. It returns the command.
func compileFed(f *testing.F) []string {
	f.Helper()
	sources, err := filepath.Glob("*.c")
	if err != nil {
		f.Fatal(err)
	}
	fed := filepath.Join(f.TempDir(), "fed")
	args := []string{"-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror", "-pthread"}
	args = append(append(args, "-I../internal/c", "-I.", "-o", fed, "testdata/fed.c"), sources...)
	if out, err := exec.CommandContext(f.Context(), "gcc", args...).CombinedOutput(); err != nil {
		f.Fatalf("%v: %s", err, out)
	}
	// Where the kernel spreads addresses widely (vm.mmap_rnd_bits of 32), a library may be where the sanitizer's own memory is.
	return []string{"setarch", "--addr-no-randomize", fed}
}

// FuzzMessages feeds init with packets of any content, with any descriptors; testdata/fed.c has the format. The
// sanitizers watch init, which ends when the channel does.
func FuzzMessages(f *testing.F) {
	command := compileFed(f)
	const start, files, runs, kill, up, ended = 2, 3, 4, 5, 6, 10
	message := func(kind, descriptors byte, fields ...byte) []byte {
		content := bytes.Repeat([]byte{0}, 4*len(fields)) // what follows the kind
		for i, field := range fields {
			content[4*i] = field
		}
		return append([]byte{kind, descriptors, byte(len(content))}, content...)
	}
	for _, packets := range [][][]byte{
		{},
		{message(start, 5, 0, 5)}, // a child
		{message(start, 5, 0, 5), message(start, 6, 0, 6, 1), message(runs, 0, 0, 0, 0, 2), message(kill, 0, 0, 0, 0, 3), message(up, 0), message(up, 0)},
		{message(start, 253, 0, 254), message(files, 1), message(start, 5, 0, 5)},
		{message(start, 253, 0, 254), message(files, 0), message(start, 5, 0, 5)},   // a start that fails in its middle
		{message(start, 2, 0, 9), message(start, 5, 0, 5), message(start, 5, 0, 5)}, // too few
		{message(start, 0, 0, 0), message(start, 1, 0, 1, 1), message(start, 1, 0, 1), message(start, 2, 0, 2)},
		{message(files, 200), message(ended, 9), message(0, 0), message(255, 1), message(start, 5, 0, 5)},
		{message(start, 5, 0, 5), {start, 1, 128}},     // an empty packet
		{message(start, 5, 0, 5), {start, 1, 129, 7}},  // a short one
		{message(start, 5, 0, 255), {start, 253, 255}}, // a long one, in a start
	} {
		f.Add(bytes.Join(packets, nil))
	}
	f.Fuzz(func(t *testing.T, packets []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Env = []string{"ASAN_OPTIONS=exitcode=99:detect_leaks=0", "UBSAN_OPTIONS=exitcode=99:print_stacktrace=1"}
		cmd.WaitDelay = time.Second // its children have its output
		cmd.Stdin = bytes.NewReader(packets)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}
