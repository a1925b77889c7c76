package container

import (
	"fmt"
	"strings"
	"sync"

	"kurma.io/stager/spec"
)

// filterCache compiles each filter once: libseccomp takes about ten milliseconds for a set, and
// the apps of a pod often have the same one. The zero value is an empty cache. Several goroutines
// may use it at once.
type filterCache struct {
	mu      sync.Mutex
	filters map[string]func() (*filter, error) // guarded by mu; the first call compiles
}

// of returns the filter of a process, nil for none.
func (c *filterCache) of(p *spec.Process) (*filter, error) {
	if p.Seccomp.Kind == spec.SeccompOff {
		return nil, nil //nolint:nilnil // no filter is a filter here
	}
	return c.cached(p.Seccomp, p.Capabilities)()
}

func (c *filterCache) cached(s spec.Seccomp, capabilities []string) func() (*filter, error) {
	key := fmt.Sprint(s, strings.Join(capabilities, " "))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filters == nil {
		c.filters = map[string]func() (*filter, error){}
	}
	if c.filters[key] == nil {
		c.filters[key] = sync.OnceValues(func() (*filter, error) {
			switch s.Kind {
			case spec.SeccompSet:
				return compileSet(s.Set)
			case spec.SeccompProfile:
				return loadProfile(s.Profile, capabilities)
			}
			return defaultFilter(capabilities)
		})
	}
	return c.filters[key]
}
