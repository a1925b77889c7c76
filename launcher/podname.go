package main

import (
	"strings"
	"unicode"
)

// maxPodName is the most bytes of a pod's name: the stager makes a hostname of
// it, and Linux takes 64 bytes.
const maxPodName = 64

// isPodName reports whether a pod may have that name.
func isPodName(name string) bool {
	other := strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) })
	return name != "" && len(name) <= maxPodName && other < 0 && !strings.ContainsRune("-._", rune(name[0]))
}

func isNameRune(r rune) bool {
	return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-._", r))
}

// podName makes a pod's name of a file's, with dashes for what it may not hold.
func podName(file string) string {
	name := strings.TrimLeft(strings.Map(func(r rune) rune {
		if isNameRune(r) {
			return r
		}
		return '-'
	}, file), "-._")
	if name == "" {
		return "pod"
	}
	return name[:min(len(name), maxPodName)]
}
