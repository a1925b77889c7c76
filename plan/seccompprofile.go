package plan

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// seccompRules is what is checked of a seccomp profile.
type seccompRules struct {
	DefaultAction   string `json:"defaultAction"`
	DefaultErrnoRet int    `json:"defaultErrnoRet"`
	Syscalls        []struct {
		Action   string `json:"action"`
		ErrnoRet int    `json:"errnoRet"`
		Args     []struct {
			Index uint   `json:"index"`
			Op    string `json:"op"`
		} `json:"args"`
	} `json:"syscalls"`
}

// profileOf reads the annotation for a seccomp profile; "" for none. The runtime compiles it: which rules apply
// depends on the machine.
func profileOf(annotations types.Annotations) (string, error) {
	text, found := annotations.Get(names.SeccompProfileAnnotation)
	if !found {
		return "", nil
	}
	var rules seccompRules
	err := json.Unmarshal([]byte(text), &rules)
	if err == nil {
		err = rules.check()
	}
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", names.SeccompProfileAnnotation, err)
	}
	return text, nil
}

// check refuses what a runtime cannot load.
func (r seccompRules) check() error {
	if err := checkAction("defaultAction", r.DefaultAction, r.DefaultErrnoRet); err != nil {
		return err
	}
	for i, rule := range r.Syscalls {
		path := fmt.Sprintf("syscalls[%d].", i)
		if err := checkAction(path+"action", rule.Action, rule.ErrnoRet); err != nil {
			return err
		}
		for _, arg := range rule.Args {
			if !slices.Contains(spec.SeccompOperators(), arg.Op) {
				return fmt.Errorf("%sargs: op %q: must be one of %s", path, arg.Op, quoted(spec.SeccompOperators()))
			}
			const last = 5
			if arg.Index > last {
				return fmt.Errorf("%sargs: index %d: must be from 0 to %d", path, arg.Index, last)
			}
		}
	}
	return nil
}

func checkAction(path, action string, errno int) error {
	if !slices.Contains(spec.SeccompActions(), action) {
		return fmt.Errorf("%s: %q: must be one of %s", path, action, quoted(spec.SeccompActions()))
	}
	const last = 4095 // MAX_ERRNO
	if errno < 0 || errno > last {
		return fmt.Errorf("%s: error %d: must be from 0 to %d", path, errno, last)
	}
	return nil
}

// useProfile has the app's profile take the place of its other filters.
func (a *appIsolators) useProfile(annotations types.Annotations, c Config, s spec.Support) error {
	profile, err := profileOf(annotations)
	switch {
	case err != nil || profile == "":
		return err
	case c.forbids(PowerSeccomp):
		return fmt.Errorf("annotation %s: %w", names.SeccompProfileAnnotation,
			forbidden("a seccomp filter other than the default", PowerSeccomp))
	case !s.Seccomp:
		return fmt.Errorf("annotation %s: the runtime loads no seccomp filters", names.SeccompProfileAnnotation)
	}
	a.Seccomp = spec.Seccomp{Kind: spec.SeccompProfile, Profile: profile}
	return nil
}
