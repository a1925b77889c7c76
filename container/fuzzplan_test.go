package container

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The files of the child of pid1/testdata/planned.c, and the kinds of operations in child.h.
const (
	plannedRoot, plannedReady, plannedFolder, plannedFile, plannedShim = 3, 4, 5, 6, 7
	plannedFiles                                                       = 10

	opAttach, opCopy, opMask, opProc, opMake, opRestrict = 1, 2, 3, 4, 5, 6
	folder, file, ifThere, noLinks                       = 1, 2, 4, 8
)

// compilePlanned compiles the child's code with sanitizers and a main function that forks by plans of its input, and a
// program that the child becomes. It returns the command.
func compilePlanned(f *testing.F) []string {
	f.Helper()
	planned, harmless := filepath.Join(f.TempDir(), "planned"), filepath.Join(f.TempDir(), "true")
	source := harmless + ".c"
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	sources, err := filepath.Glob("../pid1/*.c")
	if err != nil {
		f.Fatal(err)
	}
	sanitized := []string{"-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror", "-pthread"}
	sanitized = append(append(sanitized, "-I../internal/c", "-I../pid1", "-o", planned, "../pid1/testdata/planned.c"), sources...)
	for _, args := range [][]string{sanitized, {"-static", "-o", harmless, source}} {
		if out, err := exec.CommandContext(f.Context(), "gcc", args...).CombinedOutput(); err != nil {
			f.Fatalf("%v: %s", err, out)
		}
	}
	// Where the kernel spreads addresses widely (vm.mmap_rnd_bits of 32), a library may be where the sanitizer's own memory is.
	return []string{"setarch", "--addr-no-randomize", planned, harmless}
}

// FuzzPlan has a child execute plans, which the sanitizers watch. A plan's operations are four bytes each: the kind, the
// flags, what is mounted, and attributes; words are separated by spaces: sources and targets in turn.
func FuzzPlan(f *testing.F) {
	command := compilePlanned(f)
	op := func(kind, flags, mount, set byte) string { return string([]byte{kind, flags, mount, set}) }
	for _, seed := range []struct{ operations, words, shim string }{
		{"", "", "/ /bin/true true A=1"},
		{op(opAttach, folder, 0, 0) + op(opCopy, folder, 0, 1) + op(opRestrict, 0, 0, 1), " /a/b/c /a /d/e", "/a /bin/none /bin/true"},
		{op(opAttach, file, 1, 0) + op(opCopy, ifThere, 0, 0), " ../../f//g  /none", "/none /bin/true"},
		{op(opMake, folder, 0, 0) + op(opMask, ifThere, 1, 0) + op(opMask, 0, 1, 0) + op(opMask, 0, 1, 0), " /a  /none  /a  /a", "/ /bin/true"},
		{op(opProc, folder, 0, 7) + op(opMake, folder|noLinks, 0, 0), "ptraceable /proc  /proc/self/root/x", "/proc /bin/true"},
		{op(opMake, folder, 0, 0) + op(9, 0xff, 0xff, 0xff), " " + strings.Repeat("/long", 900), strings.Repeat("/", 5000)},
	} {
		for user := range uint32(2) {
			f.Add([]byte(seed.operations), seed.words, seed.shim, "keys", "", uint32(shimNoNewPrivs|shimOwnStdio|shimListenPID), uint64(1), 1000+user)
		}
	}
	f.Add([]byte{}, "", "/ /bin/true", "", "label", uint32(shimJoin|shimJoinCgroups|shimNewCgroups|shimLandlock), uint64(1<<63|1), uint32(0))
	f.Fuzz(func(t *testing.T, operations []byte, words, shim, keyring, label string, flags uint32, bounding uint64, uid uint32) {
		child := &forked{
			files: slices.Repeat([]*os.File{os.Stdin}, plannedFiles), shim: plannedShim, root: plannedRoot, ready: plannedReady,
			keyring: keyring, label: label, ownPIDs: uid%2 == 0, owner: uid % 3 * 1000, operations: operationsOf(operations, strings.Split(words, " ")),
		}
		plan, err := child.encode()
		words = strings.Join(strings.Fields(shim), " ")
		dir, rest, _ := strings.Cut(words, " ")
		list := strings.Split(rest, " ")
		next := &shimPlan{
			flags: flags &^ shimJoin, bounding: bounding, ambient: bounding & 1, uid: uid, gid: uid, groups: []uint32{uid}, dir: dir,
			candidates: list, args: list, env: list, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16},
		}
		second, nextErr := next.encode()
		if err != nil || nextErr != nil {
			return // a word with a NUL byte
		}
		checkPlanned(t, command, plan, second)
	})
}

// operationsOf takes an operation from each four bytes, a dozen at most: a copy of the root in itself doubles the mounts.
func operationsOf(data []byte, words []string) (all []operation) {
	for o := range slices.Chunk(data[:min(len(data)&^3, 48)], 4) {
		one := operation{kind: uint32(o[0]), flags: uint32(o[1]), file: plannedFolder + int(o[2]&1), other: plannedFolder, set: uint64(o[3])}
		if len(words) > 0 {
			one.source, words = words[0], words[1:]
		}
		if len(words) > 0 {
			one.target, words = words[0], words[1:]
		}
		all = append(all, one)
	}
	return all
}

// checkPlanned has a child execute plans. It may fail, and be killed by a filter, but not because of its own memory.
func checkPlanned(t *testing.T, command []string, plan, shim []byte) {
	t.Helper()
	input := binary.NativeEndian.AppendUint32(nil, uint32(len(plan)))
	input = binary.NativeEndian.AppendUint32(input, uint32(len(shim)))
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = []string{"ASAN_OPTIONS=exitcode=99:detect_leaks=0", "UBSAN_OPTIONS=exitcode=99:print_stacktrace=1"}
	cmd.Stdin = bytes.NewReader(slices.Concat(input, plan, shim))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}
