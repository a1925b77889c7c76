package strictjson

import (
	"fmt"
	"strings"
)

// maxShown is how much of a value or key an error shows, in bytes: enough for a whole image ID.
const maxShown = 160

// Join returns the path of the field key in the object at path: path.key, or
// path["odd key"].
func Join(path, key string) string {
	if !plain(key) {
		return fmt.Sprintf("%s[%s]", path, Quote(key))
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// plain reports whether a path can show the key without quotes.
func plain(key string) bool {
	odd := func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}
	return key != "" && len(key) <= maxShown && !strings.ContainsFunc(key, odd)
}

// Show returns a JSON value for an error: on one line, and no more than
// maxShown bytes of it.
func Show(value []byte) string {
	s := oneLine(strings.ToValidUTF8(string(value[:min(len(value), 4*maxShown)]), "?"))
	if len(s) > maxShown || len(value) > 4*maxShown {
		return strings.ToValidUTF8(s[:min(len(s), maxShown)], "") + "…"
	}
	return s
}

// Quote returns a string for an error: in quotes, on one line, and no more than
// maxShown bytes of it.
func Quote(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%q…", s[:maxShown])
	}
	return fmt.Sprintf("%q", s)
}

// oneLine turns each run of white space and control characters into one space.
func oneLine(s string) string {
	isBreak := func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 }
	return strings.Join(strings.FieldsFunc(s, isBreak), " ")
}
