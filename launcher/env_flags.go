package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/plan"

	"github.com/spf13/pflag"
)

// envFlags collects --env and --env-file.
type envFlags struct{ given, fromFiles []pods.Environment }

func (e *envFlags) declare(flags *pflag.FlagSet) {
	flags.FuncP("env", "e", "set a variable, `NAME=VALUE`, or pass your own, NAME", func(text string) error {
		one, err := parseEnv(text)
		e.given = append(e.given, one)
		return err
	})
	flags.Func("env-file", "set the variables of a `FILE`, a NAME=VALUE or your own NAME a line; --env overrides them",
		func(path string) error {
			all, err := readEnvFile(path)
			e.fromFiles = append(e.fromFiles, all...)
			return err
		})
}

// declareUser declares --user.
func declareUser(flags *pflag.FlagSet, user, group *string) {
	flags.FuncP("user", "u", "run as `USER[:GROUP]`, names or numbers", func(text string) error {
		if *user, *group, _ = strings.Cut(text, ":"); *user == "" {
			return errors.New("want USER[:GROUP]")
		}
		return nil
	})
}

// all returns the variables; a later one overrides an earlier one of the same name.
func (e *envFlags) all() []pods.Environment { return slices.Concat(e.fromFiles, e.given) }

// parseEnv reads NAME=VALUE, or NAME for the caller's variable.
func parseEnv(text string) (pods.Environment, error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		if value, ok = os.LookupEnv(name); !ok {
			return pods.Environment{}, fmt.Errorf("no variable %s in your environment; want NAME=VALUE", quoted(name))
		}
	}
	return environment(name, value)
}

// environment returns the variable. Its error does not have the value, which may be a secret.
func environment(name, value string) (pods.Environment, error) {
	if name == "" {
		return pods.Environment{}, errors.New("want NAME=VALUE")
	}
	if !utf8.ValidString(name + value) { // JSON would change it
		return pods.Environment{}, errors.New("not UTF-8")
	}
	if !plan.IsVariableName(name) {
		return pods.Environment{}, fmt.Errorf(`name %s: want a name of letters, digits, "_", "." and "-", `+
			`which begins with a letter or "_"`, quoted(name))
	}
	return pods.Environment{Name: name, Value: value}, nil
}

// byteOrderMark is what some editors write before a text in UTF-8.
const byteOrderMark = "\ufeff"

// readEnvFile reads a file of lines NAME=VALUE, or NAME for the caller's variable, also after a byte order mark. Empty
// lines and lines that begin with # are left out; everything after the first = is the value. An error names the line
// by its number, and shows no line that may be a part of a value.
func readEnvFile(path string) ([]pods.Environment, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []pods.Environment
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		if number == 1 {
			line = strings.TrimPrefix(line, byteOrderMark)
		}
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				return nil, fmt.Errorf("line %d: want NAME=VALUE, or the NAME of a variable of your environment", number)
			}
		}
		one, err := environment(name, value)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		all = append(all, one)
	}
	return all, lines.Err()
}
