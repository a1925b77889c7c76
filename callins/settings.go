package callins

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/spec"
)

// maxSettings is the largest size of run's settings in bytes.
const maxSettings = 1 << 20

// settings is what run reads from descriptor 3 (stager specification, run).
type settings struct {
	Exec              []string   `json:"exec"`
	User              string     `json:"user"`
	Group             string     `json:"group"`
	SupplementaryGIDs []int64    `json:"supplementaryGIDs"`
	WorkingDirectory  string     `json:"workingDirectory"`
	Environment       []variable `json:"environment"`
	TTY               bool       `json:"tty"`
}

// variable has both keys (stager specification, run).
type variable struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

// parseSettings reads and checks settings. An unknown field is an error, because a
// misspelt "user" must not run the command as another user; so is a field given
// twice, because the later "USER" would override the "user" that the daemon has checked.
func parseSettings(text []byte) (settings, error) {
	var s settings
	if !utf8.Valid(text) {
		return s, errors.New("settings are not valid UTF-8")
	}
	err := strictjson.Decode(text, &s)
	var twice *strictjson.DuplicateKeyError
	switch {
	case errors.As(err, &twice):
		return s, fmt.Errorf("settings: %q and %q are the same field, given twice", twice.First, twice.Second)
	case errors.Is(err, strictjson.ErrEmpty):
		return s, errors.New("settings are empty")
	case err != nil:
		return s, fmt.Errorf("read settings: %w", err)
	}
	return s, s.validate()
}

func (s settings) validate() error {
	switch {
	case len(s.Exec) == 0:
		return errors.New(`settings: "exec" is required`)
	case s.Exec[0] == "":
		return errors.New(`settings: "exec" has an empty program`)
	case s.User == "":
		return errors.New(`settings: "user" is required`)
	case s.Group == "":
		return errors.New(`settings: "group" is required`)
	case s.WorkingDirectory != "" && s.WorkingDirectory[0] != '/':
		return fmt.Errorf(`settings: "workingDirectory" %q is not absolute`, s.WorkingDirectory)
	}
	for _, gid := range s.SupplementaryGIDs {
		if gid < 0 || gid > spec.MaxID {
			return fmt.Errorf(`settings: "supplementaryGIDs" has %d, which is not a group ID`, gid)
		}
	}
	if err := s.validateEnvironment(); err != nil {
		return err
	}
	return s.validateNUL()
}

// validateNUL refuses strings that execve(2) would cut short.
func (s settings) validateNUL() error {
	texts := slices.Concat(s.Exec, []string{s.User, s.Group, s.WorkingDirectory})
	for _, v := range s.Environment {
		texts = append(texts, *v.Value)
	}
	for _, text := range texts {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("settings: %q has a NUL character", text)
		}
	}
	return nil
}

func (s settings) validateEnvironment() error {
	// appc's rule, which has "." and "-" beyond the stager specification's: a daemon passes an app's variables on.
	isName := regexp.MustCompile(`^[A-Za-z_][A-Za-z_0-9.-]*$`).MatchString
	seen := make(map[string]bool, len(s.Environment))
	for _, v := range s.Environment {
		if !isName(v.Name) {
			return fmt.Errorf(`settings: "environment" has the name %q, want letters, digits, "_", "." and "-"`, v.Name)
		}
		if seen[v.Name] {
			return fmt.Errorf(`settings: "environment" has %q twice`, v.Name)
		}
		if v.Value == nil {
			return fmt.Errorf(`settings: "environment" has no value for %q`, v.Name)
		}
		seen[v.Name] = true
	}
	return nil
}

// command returns the settings as the supervisor takes them. It adds the variables of defaults,
// NAME=value, whose name the settings do not list.
func (s settings) command(defaults []string) spec.Command {
	listed := make(map[string]bool, len(s.Environment))
	env := make([]string, 0, len(s.Environment)+len(defaults))
	for _, v := range s.Environment {
		listed[v.Name] = true
		env = append(env, v.Name+"="+*v.Value)
	}
	for _, d := range defaults {
		name, _, _ := strings.Cut(d, "=")
		if !listed[name] {
			listed[name] = true
			env = append(env, d)
		}
	}
	gids := make([]int, len(s.SupplementaryGIDs))
	for i, gid := range s.SupplementaryGIDs {
		gids[i] = int(gid)
	}
	return spec.Command{
		Args: s.Exec, Env: env, User: s.User, Group: s.Group, SupplementaryGID: gids, Dir: s.WorkingDirectory,
	}
}
