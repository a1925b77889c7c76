package container

import (
	"fmt"
	"strings"

	"github.com/moby/sys/capability"
)

// boundingSet turns capability names into a bit mask, bit N for capability N.
// A name that this kernel's headers do not know is an error; one that the
// running kernel or the stager's own bounding set lacks is left out, as
// nobody can be given it.
func boundingSet(names []string) (uint64, error) {
	numbers := make(map[string]uint)
	for _, c := range capability.ListKnown() {
		numbers["CAP_"+strings.ToUpper(c.String())] = uint(c)
	}
	var set uint64
	for _, name := range names {
		n, ok := numbers[name]
		if !ok {
			return 0, fmt.Errorf("unknown capability %q", name)
		}
		set |= 1 << n
	}
	return set, nil
}
