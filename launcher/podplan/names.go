package podplan

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"kurma.io/stager/manifest"
)

// MaxName is the maximum length of a pod's name in bytes: the stager makes a
// hostname of the name, and Linux takes 64 bytes.
const MaxName = 64

// ErrName says that IsName does not hold for the name of a pod or a named volume.
var ErrName = fmt.Errorf("want letters, digits, '.', '_' and '-', %d at most, the first a letter or digit", MaxName)

// IsName reports whether a pod, or a named volume, may have that name: letters, digits, '.', '_' and '-'
// of ASCII, the first a letter or digit, MaxName at most.
func IsName(name string) bool {
	other := strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) })
	return name != "" && len(name) <= MaxName && other < 0 && !strings.ContainsRune("-._", rune(name[0]))
}

func isNameRune(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-._", r))
}

// fileName makes a pod's name from the path of its manifest.
func fileName(path string) string { return podName(strings.TrimSuffix(filepath.Base(path), ".json")) }

// podName makes a pod's name from a text: other characters become dashes.
func podName(text string) string {
	name := strings.TrimLeft(strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '-'
	}, text), "-._")
	if name == "" {
		return "pod"
	}
	return name[:min(len(name), MaxName)]
}

// freeName returns the first of NAME, NAME-2, NAME-3 and so on that is not taken.
func freeName(name string, taken func(string) bool) string {
	free := name
	for n := 2; taken(free); n++ {
		number := fmt.Sprintf("-%d", n)
		free = name[:min(len(name), MaxName-len(number))] + number
	}
	return free
}

// appName makes an app's name from the last part of an image's name: characters that
// an app's name must not have become dashes. The name is as long as an app's name may be, at most.
func appName(image string) string {
	base := strings.ToLower(image[strings.LastIndexByte(image, '/')+1:])
	name := strings.TrimLeft(strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= '0' && r <= '9') {
			return r
		}
		return '-'
	}, base), "-")
	name = strings.TrimRight(name[:min(len(name), manifest.MaxName)], "-")
	if name == "" {
		return "app"
	}
	return name
}
