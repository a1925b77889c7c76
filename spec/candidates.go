package spec

import "strings"

const (
	// maxName is the longest name of a file on every file system of the kernel (NAME_MAX).
	maxName = 255
	// maxVariable is the longest variable that the kernel passes to a program (MAX_ARG_STRLEN, execve(2)).
	maxVariable = 128 << 10
)

// Candidates returns the paths to try for a program, in order. A name with a slash is a path. A
// name without a slash is looked up in PATH, or if the environment has no PATH, in the current
// directory and confstr(_CS_PATH) (appc, aci.md, exec). The kernel finds no program of a longer name than
// a file's, and executes none with a longer PATH than a variable's: Candidates returns the name alone then, so that an
// image cannot ask for a long name in each of many folders.
func Candidates(name string, env []string) []string {
	if strings.Contains(name, "/") || len(name) > maxName {
		return []string{name}
	}
	path := ":/bin:/usr/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	if len(path) > maxVariable {
		return []string{name}
	}
	var out []string
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		out = append(out, dir+"/"+name)
	}
	return out
}
