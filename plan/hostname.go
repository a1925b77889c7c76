package plan

import (
	"fmt"
	"regexp"
	"strings"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// maxHostname is the maximum length of a hostname in bytes (sethostname(2)).
const maxHostname = 64

// IsHostname reports whether a pod may have the hostname: letters, digits and '-' between dots, 64 bytes at most
// (hostname(7)).
func IsHostname(name string) bool {
	const label = `[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?`
	return len(name) <= maxHostname && regexp.MustCompile(`^`+label+`(\.`+label+`)*$`).MatchString(name)
}

// hostname returns the hostname to set in the pod's UTS namespace: that of the pod's annotation, or one made from the
// pod's name; "" for none.
func hostname(m *manifest.Manifest, ns Namespaces) (string, error) {
	name, asked := m.Pod.Annotations.Get(names.HostnameAnnotation)
	switch {
	case asked && ns.HostUTS:
		return "", fmt.Errorf("annotation %s: %q: the pod has the host's UTS namespace", names.HostnameAnnotation, name)
	case asked && !IsHostname(name):
		return "", fmt.Errorf("annotation %s: %q: must be letters, digits and '-' between dots, %d bytes at most",
			names.HostnameAnnotation, name, maxHostname)
	case asked:
		return name, nil
	case ns.HostUTS:
		return "", nil
	}
	return hostnameOf(m.Name), nil
}

// hostnameOf derives a hostname from the pod's name: at most maxHostname bytes,
// without characters that resolvers and files reject. It may be "".
func hostnameOf(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	return strings.Trim(clean[:min(len(clean), maxHostname)], "-.")
}
