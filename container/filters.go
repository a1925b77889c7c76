package container

import (
	"fmt"
	"strings"
	"sync"

	"kurma.io/stager/spec"
)

// filterCache compiles filters, each once: a set costs libseccomp some ten milliseconds, and
// the apps of a pod often share one. The zero value is empty. Several goroutines may use
// it at once.
type filterCache struct {
	mu      sync.Mutex
	filters map[string]*cachedFilter // guarded by mu
}

// cachedFilter is compiled by whoever asks for it first.
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
	entry := c.entry(fmt.Sprint(p.Seccomp, strings.Join(p.Capabilities, " ")))
	entry.once.Do(func() {
		if p.Seccomp.Kind == spec.SeccompSet {
			entry.filter, entry.err = compileSet(p.Seccomp.Set)
		} else {
			entry.filter, entry.err = defaultFilter(p.Capabilities)
		}
	})
	return entry.filter, entry.err
}

func (c *filterCache) entry(key string) *cachedFilter {
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
