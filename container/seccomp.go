package container

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// filter is a compiled seccomp program: struct sock_filter instructions in the machine's byte
// order, as seccomp_export_bpf(3) writes them. The runtime compiles it once per pod, and each
// process loads it. A filter never changes; several goroutines may use it.
type filter struct {
	program []byte
}

// loadFilter makes a filter of instructions, eight bytes each. The caller must not change them
// afterwards.
func loadFilter(program []byte) (*filter, error) {
	n := len(program) / unix.SizeofSockFilter
	if n == 0 || len(program)%unix.SizeofSockFilter != 0 || n > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("%d bytes are not a seccomp program", len(program))
	}
	return &filter{program: program}, nil
}

// compileDefault compiles the maintained profile for the bounding set.
func compileDefault(capabilities []string) (*filter, error) {
	profile, err := seccomp.GetDefaultProfile(bounded(capabilities))
	if err != nil {
		return nil, fmt.Errorf("read default seccomp profile: %w", err)
	}
	return compileProfile(profile)
}

// loadProfile compiles a profile for the bounding set.
func loadProfile(text string, capabilities []string) (*filter, error) {
	profile, err := seccomp.LoadProfile(text, bounded(capabilities))
	if err == nil && profile == nil {
		err = errors.New("no defaultAction")
	}
	if err != nil {
		return nil, fmt.Errorf("read seccomp profile: %w", err)
	}
	return compileProfile(profile)
}

// bounded is what profiles know of a process.
func bounded(capabilities []string) *specs.Spec {
	return &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: capabilities}}}
}

// compileSet compiles the set to a program for every ABI of the machine.
func compileSet(s spec.SyscallSet) (*filter, error) {
	blocked, allowed := libseccomp.ActKillProcess, libseccomp.ActAllow
	if s.Errno != 0 {
		blocked = libseccomp.ActErrno.SetReturnCode(int16(s.Errno))
	}
	fallback, listed := allowed, blocked
	if s.Retain {
		fallback, listed = blocked, allowed
	}
	b, err := newBuilder(fallback, callTables())
	if err != nil {
		return nil, err
	}
	defer b.filter.Release()
	for _, name := range s.Names() {
		if err := b.add(name, listed, nil); err != nil {
			return nil, err
		}
	}
	return b.compile()
}

func compileProfile(p *specs.LinuxSeccomp) (*filter, error) {
	fallback, err := action(p.DefaultAction, p.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	b, err := newBuilder(fallback, tablesOf(p))
	if err != nil {
		return nil, err
	}
	defer b.filter.Release()
	for _, rule := range p.Syscalls {
		act, err := action(rule.Action, rule.ErrnoRet)
		if err != nil {
			return nil, err
		}
		for _, name := range rule.Names {
			if err := b.add(name, act, rule.Args); err != nil {
				return nil, err
			}
		}
	}
	return b.compile()
}

// tablesOf returns the tables of the ABIs that a profile has rules for: all, if it names no architectures; the
// machine's own in any case. A call by another one kills the process.
func tablesOf(p *specs.LinuxSeccomp) []callTable {
	names := map[libseccomp.ScmpArch]specs.Arch{
		libseccomp.ArchX86: specs.ArchX86, libseccomp.ArchX32: specs.ArchX32, libseccomp.ArchARM: specs.ArchARM,
	}
	return slices.DeleteFunc(callTables(), func(t callTable) bool {
		name, foreign := names[t.abi]
		return foreign && len(p.Architectures) > 0 && !slices.Contains(p.Architectures, name)
	})
}

func action(a specs.LinuxSeccompAction, errno *uint) (libseccomp.ScmpAction, error) {
	code := int16(unix.EPERM)
	if errno != nil {
		code = int16(*errno)
	}
	switch a {
	case specs.ActAllow:
		return libseccomp.ActAllow, nil
	case specs.ActErrno:
		return libseccomp.ActErrno.SetReturnCode(code), nil
	case specs.ActTrace:
		return libseccomp.ActTrace.SetReturnCode(code), nil
	case specs.ActTrap:
		return libseccomp.ActTrap, nil
	case specs.ActLog:
		return libseccomp.ActLog, nil
	case specs.ActKill, specs.ActKillThread:
		return libseccomp.ActKillThread, nil
	case specs.ActKillProcess:
		return libseccomp.ActKillProcess, nil
	}
	return 0, fmt.Errorf("unknown seccomp action %q", a)
}

// builder fills a libseccomp filter. The caller releases filter.
type builder struct {
	filter   *libseccomp.ScmpFilter
	fallback libseccomp.ScmpAction
	tables   []callTable
	names    []string // that rules name
	rules    int
}

func newBuilder(fallback libseccomp.ScmpAction, tables []callTable) (*builder, error) {
	filter, err := libseccomp.NewFilter(fallback)
	if err != nil {
		return nil, fmt.Errorf("make seccomp filter: %w", err)
	}
	for _, t := range tables {
		if err := filter.AddArch(t.abi); err != nil { // none, if the filter has it already
			filter.Release()
			return nil, fmt.Errorf("add ABI %v to seccomp filter: %w", t.abi, err)
		}
	}
	// The default for an ABI that is not named kills only one thread, and a program with
	// more threads hangs.
	if err := filter.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		filter.Release()
		return nil, fmt.Errorf("make seccomp filter: %w", err)
	}
	return &builder{filter: filter, fallback: fallback, tables: tables}, nil
}

// add adds a rule, or several for conditions on the same argument, see alternatives. It skips a
// name that libseccomp does not know: no process can call it. A rule with the fallback's action changes no more than
// which calls are new.
func (b *builder) add(name string, act libseccomp.ScmpAction, args []specs.LinuxSeccompArg) error {
	b.names = append(b.names, name)
	if act == b.fallback {
		return nil
	}
	call, err := libseccomp.GetSyscallFromName(name)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	b.rules++
	for _, conditions := range alternatives(args) {
		if err := b.filter.AddRuleConditional(call, act, conditions); err != nil {
			return fmt.Errorf("add %s to seccomp filter: %w", name, err)
		}
	}
	return nil
}

// alternatives converts a rule's conditions to sets of conditions that libseccomp accepts, one for
// each rule. libseccomp rejects two conditions on one argument, which mean "or" in profiles, so
// each of them becomes a rule.
func alternatives(args []specs.LinuxSeccompArg) [][]libseccomp.ScmpCondition {
	var all []libseccomp.ScmpCondition
	used := make(map[uint]bool)
	repeated := false
	for _, a := range args {
		all = append(all, condition(a))
		repeated = repeated || used[a.Index]
		used[a.Index] = true
	}
	if !repeated {
		return [][]libseccomp.ScmpCondition{all}
	}
	var each [][]libseccomp.ScmpCondition
	for _, c := range all {
		each = append(each, []libseccomp.ScmpCondition{c})
	}
	return each
}

func condition(a specs.LinuxSeccompArg) libseccomp.ScmpCondition {
	operators := map[specs.LinuxSeccompOperator]libseccomp.ScmpCompareOp{
		specs.OpNotEqual:     libseccomp.CompareNotEqual,
		specs.OpLessThan:     libseccomp.CompareLess,
		specs.OpLessEqual:    libseccomp.CompareLessOrEqual,
		specs.OpEqualTo:      libseccomp.CompareEqual,
		specs.OpGreaterEqual: libseccomp.CompareGreaterEqual,
		specs.OpGreaterThan:  libseccomp.CompareGreater,
		specs.OpMaskedEqual:  libseccomp.CompareMaskedEqual,
	}
	return libseccomp.ScmpCondition{Argument: a.Index, Op: operators[a.Op], Operand1: a.Value, Operand2: a.ValueTwo}
}

// compile exports the program. A binary tree instead of a list makes each system call of the app
// cheaper; libseccomp up to 2.5.4 has a bug with the tree of an empty filter, which needs none.
func (b *builder) compile() (*filter, error) {
	if b.rules > 0 {
		if err := b.filter.SetOptimize(2); err != nil {
			return nil, fmt.Errorf("optimise seccomp filter: %w", err)
		}
	}
	fd, err := unix.MemfdCreate("seccomp", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "seccomp")
	defer f.Close()
	if err := b.filter.ExportBPF(f); err != nil {
		return nil, fmt.Errorf("compile seccomp filter: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	program, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	if b.blocks() {
		program = append(refuseNewCalls(b.tables, b.names), program...)
	}
	return loadFilter(program)
}

// blocks reports whether a call without a rule is not made.
func (b *builder) blocks() bool {
	switch b.fallback & math.MaxUint16 { // without a return code
	case libseccomp.ActAllow, libseccomp.ActLog, libseccomp.ActTrace:
		return false
	}
	return true
}
