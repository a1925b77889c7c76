package plan

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

// The maximum lengths in bytes of a hostname (sethostname(2)) and of its labels, which are between dots (hostname(7)).
const (
	maxHostname = 64
	maxLabel    = 63
)

// CheckHostname refuses a hostname that a pod cannot have. Its labels, between dots, are of letters, digits and '-',
// which is neither first nor last, and of 63 bytes at most; all are 64 bytes at most (hostname(7)).
func CheckHostname(name string) error {
	label := regexp.MustCompile(`^[0-9A-Za-z]([0-9A-Za-z-]*[0-9A-Za-z])?$`)
	for part := range strings.SplitSeq(name, ".") {
		if !label.MatchString(part) {
			return errors.New("want letters, digits and '-' between dots, with a letter or digit first and last")
		}
		if len(part) > maxLabel {
			return fmt.Errorf("%d bytes between dots; want %d at most", len(part), maxLabel)
		}
	}
	if len(name) > maxHostname {
		return fmt.Errorf("%d bytes; want %d at most", len(name), maxHostname)
	}
	return nil
}

// hostname returns the hostname to set in the pod's UTS namespace: that of the pod's annotation, or one made from the
// pod's name; "" for none.
func hostname(m *manifest.Manifest, ns Namespaces) (string, error) {
	name, asked := m.Pod.Annotations.Get(names.HostnameAnnotation)
	switch {
	case asked && ns.HostUTS:
		return "", fmt.Errorf("annotation %s: %q: the pod has the host's UTS namespace", names.HostnameAnnotation, name)
	case asked:
		if err := CheckHostname(name); err != nil {
			return "", fmt.Errorf("annotation %s: %q: %w", names.HostnameAnnotation, name, err)
		}
		return name, nil
	case ns.HostUTS:
		return "", nil
	}
	return HostnameOf(m.Name), nil
}

// HostnameOf derives a hostname that CheckHostname accepts from a pod's name: other characters become dashes. It may
// be "".
func HostnameOf(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	var labels []string
	for label := range strings.SplitSeq(clean[:min(len(clean), maxHostname)], ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, strings.TrimRight(label[:min(len(label), maxLabel)], "-"))
		}
	}
	return strings.Join(labels, ".")
}
