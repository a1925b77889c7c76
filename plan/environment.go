package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// environmentOf returns an app's environment, NAME=value, each name once, and what commands of run have of it: all but
// the defaults. The annotation overrides the app section, whose names appc restricts.
func environmentOf(app manifest.App, c Config, hostname string, terminal bool) (all, variables []string, err error) {
	added, err := addedVariables(app)
	if err != nil {
		return nil, nil, err
	}
	var own []string
	for _, v := range app.App.Environment {
		own = append(own, v.Name+"="+v.Value)
	}
	defaults := []string{"PATH=" + defaultPath}
	if terminal {
		defaults = append(defaults, "TERM=xterm")
	}
	variables = firstOfEachName(executorVariables(c, app.Name), added, own, dockerVariables(app.Image, hostname))
	return firstOfEachName(variables, defaults), variables, nil
}

// executorVariables describe the executor to an app and override the app's own.
func executorVariables(c Config, app string) []string {
	if !c.ExecutorVariables {
		return nil
	}
	return []string{"AC_APP_NAME=" + app, "container=" + names.Executor}
}

// dockerVariables are what Docker and Podman add to the environment of an image that was converted from theirs.
func dockerVariables(image *manifest.Image, hostname string) []string {
	if _, converted := image.Annotations.Get(names.EntrypointAnnotation); !converted || hostname == "" {
		return nil
	}
	return []string{"HOSTNAME=" + hostname}
}

// firstOfEachName returns the variables of all lists, each name once.
func firstOfEachName(lists ...[]string) []string {
	var env []string
	seen := map[string]bool{}
	for _, v := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(v, "=")
		if !seen[name] {
			env = append(env, v)
		}
		seen[name] = true
	}
	return env
}

// addedVariables reads the annotation for variables whose names appc does not allow. Its error has no values, which may
// be secrets.
func addedVariables(app manifest.App) ([]string, error) {
	text, found := annotationOf(app, names.EnvironmentAnnotation)
	if !found {
		return nil, nil
	}
	var list []string
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil, fmt.Errorf(`annotation %s: must be a list such as ["A=1", "a b=2"]`, names.EnvironmentAnnotation)
	}
	for i, v := range list {
		if err := checkVariable(v); err != nil {
			return nil, fmt.Errorf("annotation %s: [%d]: %w", names.EnvironmentAnnotation, i, err)
		}
	}
	return list, nil
}

// IsVariableName reports whether appc allows the name of a variable in an app section.
func IsVariableName(name string) bool {
	for i, c := range []byte(name) {
		isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !isLetter && (i == 0 || c != '.' && c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return name != ""
}

func checkVariable(v string) error {
	name, _, found := strings.Cut(v, "=")
	switch {
	case !found || name == "":
		return errors.New("must be NAME=value")
	case strings.ContainsRune(v, 0):
		return errors.New("has a NUL character")
	}
	return nil
}
