package callins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/supervisor"
)

// maxSettings is the size of run's settings in bytes that is still taken.
const maxSettings = 1 << 20

// maxFields is more than settings has fields.
const maxFields = 16

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

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// parseSettings reads and checks settings. An unknown field is an error: a
// misspelt "user" must not run the command as somebody else.
func parseSettings(text []byte) (settings, error) {
	var s settings
	if !utf8.Valid(text) {
		return s, errors.New("settings are not valid UTF-8")
	}
	if err := checkOnce(text); err != nil {
		return s, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		if errors.Is(err, io.EOF) {
			return s, errors.New("settings are empty")
		}
		return s, fmt.Errorf("read settings: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return s, errors.New("read settings: more follows after the JSON object")
	}
	return s, s.validate()
}

// checkOnce refuses a field that is given twice, in whatever case: encoding/json would
// take the later "USER" for the "user" that somebody has checked. What is no
// object is the decoder's to refuse.
func checkOnce(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return nil //nolint:nilerr // see above
	}
	var seen []string
	for decoder.More() {
		token, err := decoder.Token()
		key, isKey := token.(string)
		var value json.RawMessage
		if err != nil || !isKey || decoder.Decode(&value) != nil {
			return nil //nolint:nilerr // see above
		}
		for _, other := range seen {
			if strings.EqualFold(other, key) {
				return fmt.Errorf("settings: %q and %q are the same field, given twice", other, key)
			}
		}
		seen = append(seen, key)
		if len(seen) > maxFields {
			return nil // an unknown one is among them
		}
	}
	return nil
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
		if gid < 0 || gid > 1<<32-2 {
			return fmt.Errorf(`settings: "supplementaryGIDs" has %d, which is no group ID`, gid)
		}
	}
	if err := s.validateNUL(); err != nil {
		return err
	}
	return s.validateEnvironment()
}

// validateNUL refuses what execve(2) cannot pass on.
func (s settings) validateNUL() error {
	texts := slices.Concat(s.Exec, []string{s.User, s.Group, s.WorkingDirectory})
	for _, v := range s.Environment {
		texts = append(texts, v.Value)
	}
	for _, text := range texts {
		if strings.ContainsRune(text, 0) {
			return fmt.Errorf("settings: %q has a NUL character", text)
		}
	}
	return nil
}

func (s settings) validateEnvironment() error {
	seen := make(map[string]bool, len(s.Environment))
	for _, v := range s.Environment {
		if !validName(v.Name) {
			return fmt.Errorf(`settings: "environment" has the name %q, want letters, digits, "_", "." and "-"`, v.Name)
		}
		if seen[v.Name] {
			return fmt.Errorf(`settings: "environment" has %q twice`, v.Name)
		}
		seen[v.Name] = true
	}
	return nil
}

// validName is appc's rule for environment names: ^[A-Za-z_][A-Za-z_0-9.-]*$.
func validName(name string) bool {
	for i, r := range name {
		switch {
		case r == '_', 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
		case i > 0 && (r == '.' || r == '-' || '0' <= r && r <= '9'):
		default:
			return false
		}
	}
	return name != ""
}

// command is the settings as the supervisor takes them. Of defaults, NAME=value,
// those are added whose name is not listed.
func (s settings) command(defaults []string) supervisor.Command {
	listed := make(map[string]bool, len(s.Environment))
	env := make([]string, 0, len(s.Environment)+len(defaults))
	for _, v := range s.Environment {
		listed[v.Name] = true
		env = append(env, v.Name+"="+v.Value)
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
	return supervisor.Command{
		Args: s.Exec, Env: env, User: s.User, Group: s.Group, SupplementaryGID: gids, Dir: s.WorkingDirectory,
	}
}
