package podplan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
)

// Capability returns a capability's name as manifests have it, CAP_NET_ADMIN, of a name in any case, with
// or without CAP_. "all" gives ALL, which is not a capability. The error for a name that Linux does not have names
// one that is near: an app without a capability that a misspelt option should give, or with one that it should
// take away, fails later and elsewhere.
func Capability(text string) (string, error) {
	if strings.EqualFold(text, "all") {
		return "ALL", nil
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "CAP_")
	var known []string
	for _, c := range capability.ListKnown() {
		known = append(known, strings.ToUpper(c.String()))
	}
	if !slices.Contains(known, name) {
		near, differ := nearest(name, slices.Values(known))
		if 2*differ >= len(near) || differ > maxTypos {
			return "", fmt.Errorf("unknown capability %q; capabilities(7) lists them", text)
		}
		return "", fmt.Errorf("unknown capability %q; the nearest name is %s", text, near)
	}
	return "CAP_" + name, nil
}
