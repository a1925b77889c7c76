package plan

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// Wildcards of appc's seccomp sets. Others belong to other executors.
const (
	wildcardAll   = "@appc.io/all"
	wildcardEmpty = "@appc.io/empty"
)

var errBothSeccomp = errors.New("seccomp-retain-set and seccomp-remove-set must not be used together")

func (i *applier) seccompRetain(value json.RawMessage) (verdict, error) {
	return i.seccomp(value, true, wildcardAll, spec.SeccompOff)
}

func (i *applier) seccompRemove(value json.RawMessage) (verdict, error) {
	return i.seccomp(value, false, wildcardEmpty, spec.SeccompDefault)
}

// seccomp reads a set. If the set contains the wildcard mask, the filter is of kind masked and
// the rest of the set has no effect.
func (i *applier) seccomp(value json.RawMessage, retain bool, mask string, masked spec.SeccompKind) (verdict, error) {
	var v struct {
		Set   []string
		Errno string
	}
	if json.Unmarshal(value, &v) != nil || len(v.Set) == 0 {
		return verdict{}, errors.New(`must be an object with a set that is not empty, such as {"set": ["reboot"], "errno": "EPERM"}`)
	}
	if !errnoName().MatchString(v.Errno) {
		return verdict{}, errors.New("errno must be an error's name in upper case, such as EPERM")
	}
	if i.filtered {
		return verdict{}, errBothSeccomp
	}
	i.filtered = true
	if !i.machine.Seccomp {
		return ignore("the runtime loads no seccomp filters")
	}
	calls, unknown := systemCalls(v.Set)
	switch {
	case slices.Contains(v.Set, mask):
		i.app.Seccomp, i.chosen = spec.Seccomp{Kind: masked}, true
		return verdict{}, nil
	case len(calls) == 0:
		return ignore("no name in the set is known, so the isolator has no effect: %s", quoted(unknown))
	}
	errno, known := errnoOf(v.Errno)
	i.chosen = true
	i.app.Seccomp = spec.Seccomp{Kind: spec.SeccompSet, Set: spec.SyscallSet{Retain: retain, Syscalls: calls, Errno: errno}}
	switch {
	case !known:
		return change("blocked calls kill the app: this machine does not have the errno %s", v.Errno)
	case unknown != nil:
		return change("this stager does not know %s", quoted(unknown))
	}
	return verdict{}, nil
}

// errnoName is compiled on first use, see number.
var errnoName = sync.OnceValue(func() *regexp.Regexp { //nolint:gochecknoglobals // a constant, made late
	return regexp.MustCompile(`^(E[A-Z0-9]+)?$`)
})

// systemCalls separates names of system calls, sorted, from names that are not system calls on
// any machine: other executors' wildcards, and names that are misspelt or too new.
func systemCalls(set []string) (calls, unknown []string) {
	for _, name := range set {
		if isSyscall(name) {
			calls = append(calls, name)
		} else {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(calls)
	return slices.Compact(calls), unknown
}

// errnoOf returns an error number by its name. "" is 0, which means that a blocked call kills
// the app.
func errnoOf(name string) (errno syscall.Errno, known bool) {
	switch name {
	case "":
		return 0, true
	case "EWOULDBLOCK": // second names, of which ErrnoName gives one each
		return syscall.EWOULDBLOCK, true
	case "EDEADLOCK", "EDEADLK":
		return syscall.EDEADLK, true
	case "ENOTSUP", "EOPNOTSUPP":
		return syscall.ENOTSUP, true
	}
	const last = 133 // EHWPOISON; the largest on every machine that Go runs on but MIPS and SPARC
	for errno = 1; errno <= last; errno++ {
		if unix.ErrnoName(errno) == name {
			return errno, true
		}
	}
	return 0, false
}
