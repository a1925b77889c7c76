package container

import (
	"fmt"
	"strings"

	"github.com/moby/sys/capability"
)

// boundingSet turns capability names into a bit mask, bit N for capability N.
// A name that nobody knows is an error; that the stager has them all to give
// is the caller's to see to.
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
