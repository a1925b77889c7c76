package container

import (
	"fmt"
	"sync"

	"kurma.io/stager/spec"
)

// filterCache compiles each filter once: libseccomp takes about ten milliseconds for a set, and
// the apps of a pod often have the same one. The zero value is an empty cache. Several goroutines
// may use it at once.
type filterCache struct {
	filters sync.Map // by all that a filter depends on: a func() (*filter, error); its first call compiles
}

// of returns the filter of a process, nil for none.
func (c *filterCache) of(p *spec.Process) (*filter, error) {
	s, capabilities := p.Seccomp, p.Capabilities
	if s.Kind == spec.SeccompOff {
		return nil, nil //nolint:nilnil // no filter is a filter here
	}
	compile, _ := c.filters.LoadOrStore(fmt.Sprint(s, capabilities), sync.OnceValues(func() (*filter, error) {
		switch s.Kind {
		case spec.SeccompSet:
			return compileSet(s.Set)
		case spec.SeccompProfile:
			return loadProfile(s.Profile, capabilities)
		}
		return defaultFilter(capabilities)
	}))
	return compile.(func() (*filter, error))()
}
