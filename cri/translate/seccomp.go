package translate

import (
	"encoding/json"
	"fmt"
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
	errno, set := p.DefaultErrnoRet, []string{}
	for _, rule := range p.Syscalls {
		switch {
		case rule.Action == p.DefaultAction:
			continue
		case rule.Action != action:
			return isolator{}, refuse("seccomp profile with action %q beside default action %q", rule.Action, p.DefaultAction)
		case len(rule.Args)+len(rule.Includes)+len(rule.Excludes) > 0:
			return isolator{}, refuse("seccomp profile with conditions (%s)", strings.Join(rule.Names, ", "))
		}
		set = append(set, rule.Names...)
		if action == actErrno && rule.ErrnoRet != nil {
			errno = rule.ErrnoRet
		}
	}
	if len(set) == 0 {
		return isolator{}, refuse("seccomp profile without system calls")
	}
	word, err := errnoName(errno)
	return isolator{name, map[string]any{"set": set, "errno": word}}, err
}

// errnoName returns the name of a profile's error; without one it is EPERM.
func errnoName(errno *int) (string, error) {
	if errno == nil {
		return "EPERM", nil
	}
	name := unix.ErrnoName(syscall.Errno(*errno))
	if name == "" {
		return "", refuse("seccomp profile with error %d", *errno)
	}
	return name, nil
}
