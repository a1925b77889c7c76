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

// keyrings returns the calls that reach the kernel's keyrings (keyrings(7)), sorted. No namespace but that of users
// separates keyrings: user 0 of a pod has those of the host's user 0. So an app has these calls only if a retain-set
// lists them by name; the default filter has none of them, either.
func keyrings() []string { return []string{"add_key", "keyctl", "request_key"} }

// syscallIsolator is the value of a seccomp isolator.
type syscallIsolator struct {
	Set   []string
	Errno string
}

// seccomp reads the value of an isolator, and sets the filter that filterOf makes of it.
func seccomp(filterOf func(syscallIsolator) (spec.Seccomp, verdict)) func(*applier, json.RawMessage) (verdict, error) {
	return func(i *applier, value json.RawMessage) (verdict, error) {
		var v syscallIsolator
		if json.Unmarshal(value, &v) != nil || len(v.Set) == 0 {
			return verdict{}, errors.New("must be an object with a set that is not empty, such as " +
				`{"set": ["reboot"], "errno": "EPERM"}`)
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
		filter, fate := filterOf(v)
		if fate.fate != Ignored {
			i.app.Seccomp, i.chosen = filter, true
		}
		return fate, nil
	}
}

// filterToRetain makes the filter of a seccomp-retain-set. A set with the wildcard of all calls has them, but for the
// keyrings' that it does not list by name.
func filterToRetain(v syscallIsolator) (spec.Seccomp, verdict) {
	if !slices.Contains(v.Set, wildcardAll) {
		return filterOfSet(v, true)
	}
	unlisted := slices.DeleteFunc(keyrings(), func(call string) bool { return slices.Contains(v.Set, call) })
	if len(unlisted) == 0 {
		return spec.Seccomp{Kind: spec.SeccompOff}, verdict{}
	}
	errno, _ := errnoOf(v.Errno)
	if errno == 0 {
		errno = syscall.EPERM // no call that the isolator seems to allow ends the app
	}
	filter := spec.Seccomp{Kind: spec.SeccompSet, Set: spec.SyscallSet{Syscalls: unlisted, Errno: errno}}
	return filter, verdict{Modified, "blocked, because the set does not list them by name: " + quoted(unlisted)}
}

// filterToRemove makes the filter of a seccomp-remove-set. The keyrings' calls are the addition that appc leaves to the
// executor. A set with the empty wildcard is the default filter.
func filterToRemove(v syscallIsolator) (spec.Seccomp, verdict) {
	if slices.Contains(v.Set, wildcardEmpty) {
		return spec.Seccomp{Kind: spec.SeccompDefault}, verdict{}
	}
	filter, fate := filterOfSet(v, false)
	calls := append(filter.Set.Syscalls, keyrings()...)
	slices.Sort(calls)
	filter.Set.Syscalls = slices.Compact(calls)
	return filter, fate
}

// filterOfSet makes the filter of a set without wildcards that have a meaning here.
func filterOfSet(v syscallIsolator, retain bool) (spec.Seccomp, verdict) {
	calls, unknown := systemCalls(v.Set)
	if len(calls) == 0 {
		why := "no name in the set is known, so the isolator has no effect: " + quoted(unknown)
		return spec.Seccomp{}, verdict{Ignored, why}
	}
	errno, known := errnoOf(v.Errno)
	filter := spec.Seccomp{Kind: spec.SeccompSet, Set: spec.SyscallSet{Retain: retain, Syscalls: calls, Errno: errno}}
	switch {
	case !known:
		return filter, verdict{Modified, "blocked calls kill the app: this machine does not have the errno " + v.Errno}
	case unknown != nil:
		return filter, verdict{Modified, "this stager does not know " + quoted(unknown)}
	}
	return filter, verdict{}
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
