package translate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The actions of a profile that appc's sets can express.
const (
	actAllow = "SCMP_ACT_ALLOW"
	actErrno = "SCMP_ACT_ERRNO"
)

// profile is a seccomp profile of a file, as Kubernetes has it.
type profile struct {
	DefaultAction   string `json:"defaultAction"`
	DefaultErrnoRet *int   `json:"defaultErrnoRet"`
	Syscalls        []struct {
		Names    []string          `json:"names"`
		Action   string            `json:"action"`
		ErrnoRet *int              `json:"errnoRet"`
		Args     []json.RawMessage `json:"args"`
		Includes map[string]any    `json:"includes"`
		Excludes map[string]any    `json:"excludes"`
	} `json:"syscalls"`
}

// seccompIsolator returns the isolator of a profile that allows some calls and refuses the others with one error, or
// refuses some and allows the others.
func seccompIsolator(text []byte) (isolator, error) {
	var p profile
	if err := json.Unmarshal(text, &p); err != nil {
		return isolator{}, fmt.Errorf("seccomp profile: %w", err)
	}
	name, action := "os/linux/seccomp-retain-set", actAllow
	if p.DefaultAction == actAllow {
		name, action = "os/linux/seccomp-remove-set", actErrno
	} else if p.DefaultAction != actErrno {
		return isolator{}, refuse("seccomp profile with default action %q", p.DefaultAction)
	}
	set, refusals, err := p.rules(action)
	switch {
	case err != nil:
		return isolator{}, err
	case len(set) == 0:
		return isolator{}, refuse("seccomp profile without system calls")
	case len(refusals) > 1:
		return isolator{}, refuse("seccomp profile with more than one error (%d and %d)", refusals[0], refusals[1])
	}
	word, err := errnoName(refusals[0])
	return isolator{name, map[string]any{"set": set, "errno": word}}, err
}

// rules returns the system calls with an action that is not the default one, and the refusals of all that are refused,
// each once.
func (p profile) rules(action string) (set []string, refusals []int, err error) {
	if p.DefaultAction == actErrno {
		refusals = append(refusals, errnoOf(p.DefaultErrnoRet))
	}
	for _, rule := range p.Syscalls {
		if rule.Action == actErrno {
			refusals = append(refusals, errnoOf(cmp.Or(rule.ErrnoRet, p.DefaultErrnoRet)))
		}
		switch {
		case rule.Action == p.DefaultAction:
			continue
		case rule.Action != action:
			return nil, nil, refuse("seccomp profile with action %q beside default action %q", rule.Action, p.DefaultAction)
		case len(rule.Args)+len(rule.Includes)+len(rule.Excludes) > 0:
			return nil, nil, refuse("seccomp profile with conditions (%s)", strings.Join(rule.Names, ", "))
		}
		set = append(set, rule.Names...)
	}
	slices.Sort(refusals)
	return set, slices.Compact(refusals), nil
}

// errnoOf returns the number of a profile's error; without one it is EPERM.
func errnoOf(number *int) int {
	if number == nil {
		return int(unix.EPERM)
	}
	return *number
}

// errnoName returns the name of an error.
func errnoName(number int) (string, error) {
	name := unix.ErrnoName(syscall.Errno(number))
	if name == "" {
		return "", refuse("seccomp profile with error %d", number)
	}
	return name, nil
}
