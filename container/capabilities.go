package container

import (
	"fmt"
	"strings"

	"github.com/moby/sys/capability"
)

// maskOf converts capability names to a bit mask, bit N for capability N. An unknown name
// is an error. The caller makes sure that the stager has the capabilities.
func maskOf(names []string) (uint64, error) {
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
