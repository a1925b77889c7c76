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
	filters map[string]*cachedFilter // guarded by mu
}

// cachedFilter is compiled by the first goroutine that needs it.
type cachedFilter struct {
	once   sync.Once
	filter *filter
	err    error
}

// of returns the filter of a process, nil for none.
func (c *filterCache) of(p *spec.Process) (*filter, error) {
	if p.Seccomp.Kind == spec.SeccompOff {
		return nil, nil //nolint:nilnil // no filter is a filter here
	}
	cached := c.cached(fmt.Sprint(p.Seccomp, strings.Join(p.Capabilities, " ")))
	cached.once.Do(func() {
		switch p.Seccomp.Kind {
		case spec.SeccompSet:
			cached.filter, cached.err = compileSet(p.Seccomp.Set)
		case spec.SeccompProfile:
			cached.filter, cached.err = loadProfile(p.Seccomp.Profile, p.Capabilities)
		default:
			cached.filter, cached.err = defaultFilter(p.Capabilities)
		}
	})
	return cached.filter, cached.err
}

func (c *filterCache) cached(key string) *cachedFilter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.filters == nil {
		c.filters = map[string]*cachedFilter{}
	}
	if c.filters[key] == nil {
		c.filters[key] = &cachedFilter{}
	}
	return c.filters[key]
}
