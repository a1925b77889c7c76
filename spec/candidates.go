package spec

import "strings"

// Candidates returns the paths to try for a program, in order. A name with a slash is a path. A
// name without a slash is looked up in PATH, or if the environment has no PATH, in the current
// directory and confstr(_CS_PATH) (appc, aci.md, exec).
func Candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	path := ":/bin:/usr/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
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
