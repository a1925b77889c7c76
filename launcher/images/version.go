package images

import (
	"cmp"
	"strings"
)

// compareVersions compares two versions by the precedence of Semantic Versioning 2.0.0,
// extended to any number of parts: 1.10 is after 1.9, 1.0 after 1.0-rc1, and 1.0.1 after 1.0.
// Build metadata, which follows a plus sign, and a "v" at the start do not count. A version
// that begins with a number is after one that does not, such as "latest", and that after
// none. Libraries of semantic versions refuse versions with more or fewer parts, which images have.
func compareVersions(a, b string) int {
	a, b = plainVersion(a), plainVersion(b)
	coreA, preA, isPreA := strings.Cut(a, "-")
	coreB, preB, isPreB := strings.Cut(b, "-")
	return cmp.Or(
		compareBool(a != "", b != ""), compareBool(startsWithDigit(a), startsWithDigit(b)),
		compareParts(coreA, coreB), compareBool(!isPreA, !isPreB), compareParts(preA, preB))
}

func plainVersion(version string) string {
	version, _, _ = strings.Cut(version, "+")
	if rest, found := strings.CutPrefix(version, "v"); found && startsWithDigit(rest) {
		return rest
	}
	return version
}

func startsWithDigit(s string) bool { return s != "" && s[0] >= '0' && s[0] <= '9' }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// compareParts compares what the dots separate: numbers by value and before words. A list that
// continues is after one that ends.
func compareParts(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		if c := comparePart(as[i], bs[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(as), len(bs))
}

func comparePart(a, b string) int {
	if !isNumber(a) || !isNumber(b) {
		return cmp.Or(compareBool(!isNumber(a), !isNumber(b)), cmp.Compare(a, b))
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0") // they may be too long for an int
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
