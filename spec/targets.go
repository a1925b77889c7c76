package spec

import "strings"

// Reserved returns the path over or in which a mount target is, where that must stay
// what an app's surroundings have there, or "": a mount over /proc makes the
// runtime's own protections act on files of somebody else's choice (CVE-2019-16884).
func Reserved(target string) string {
	switch target {
	case "/", "/dev":
		return target
	}
	for _, folder := range []string{"/proc", "/dev/pts"} {
		if target == folder || Inside(target, folder) {
			return folder
		}
	}
	return ""
}

// Inside tells whether the cleaned path p is below folder.
func Inside(p, folder string) bool {
	return strings.HasPrefix(p, strings.TrimSuffix(folder, "/")+"/")
}
