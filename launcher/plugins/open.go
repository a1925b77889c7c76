package plugins

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
)

// Open returns a network's plugin; it is networks.Connector's Open. It starts and sets up the container
// unless it runs with the same configuration. Each call of the plugin does so, too: another launcher may have
// replaced the container meanwhile.
func (c *Containers) Open(ctx context.Context, name string) (networks.Plugin, error) {
	return open(ctx, name, c.use)
}

// OpenAny returns a network's plugin for calls that bring their configuration; it is networks.Connector's OpenAny.
// Any container of the network will do that runs and is set up: its entry may be newer than this launcher's
// configuration. If none runs, it starts one, with the image and the entry that were set up
// last, if there are some, because the pods that are connected are known to them, else with those of the configuration.
func (c *Containers) OpenAny(ctx context.Context, name string) (networks.Plugin, error) {
	return open(ctx, name, c.useAny)
}

// use is a function that returns a network's container, which stays until release is called.
type use func(ctx context.Context, name string) (p *container, release func(), err error)

func open(ctx context.Context, name string, use use) (networks.Plugin, error) {
	_, release, err := use(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open plugin of network %q: %w", name, err)
	}
	release()
	return &plugin{name, use}, nil
}

// plugin is a network's plugin, a networks.Plugin: each call finds the container that runs then.
type plugin struct {
	name string
	use  use
}

// Setup implements networks.Plugin.
func (p *plugin) Setup(ctx context.Context, config string) error {
	c, release, err := p.use(ctx, p.name)
	if err != nil {
		return err
	}
	defer release()
	return c.setup(ctx, config)
}

// Add implements networks.Plugin.
func (p *plugin) Add(ctx context.Context, call networks.Call) ([]byte, error) {
	c, release, err := p.use(ctx, p.name)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.add(ctx, call)
}

// Del implements networks.Plugin.
func (p *plugin) Del(ctx context.Context, call networks.Call) error {
	c, release, err := p.use(ctx, p.name)
	if err != nil {
		return err
	}
	defer release()
	return c.del(ctx, call)
}

// use returns the container that is set up with the configuration.
func (c *Containers) use(ctx context.Context, name string) (*container, func(), error) {
	n, err := networks.Find(c.Networks, name)
	if err != nil {
		return nil, nil, err
	}
	return c.obtain(ctx, name, func(r record) bool { return r.Entry == n.Entry }, []networks.Network{n})
}

// useAny returns any container that is set up.
func (c *Containers) useAny(ctx context.Context, name string) (*container, func(), error) {
	candidates, err := c.candidates(name)
	if err != nil {
		return nil, nil, err
	}
	return c.obtain(ctx, name, func(r record) bool { return r.Entry != "" }, candidates)
}

// candidates returns what a network's container may be started with, the best first.
func (c *Containers) candidates(name string) ([]networks.Network, error) {
	n, err := networks.Find(c.Networks, name)
	r, readErr := c.readRecord(name)
	last := r.good()
	switch {
	case readErr != nil || last.Entry == "":
		return []networks.Network{n}, err
	case err != nil:
		return []networks.Network{{Name: name, ACI: last.Image, Entry: last.Entry}}, nil
	case last.Entry == n.Entry:
		return []networks.Network{n}, nil
	}
	return []networks.Network{{Name: name, ACI: last.Image, Entry: last.Entry}, n}, nil
}

// obtain returns a network's container whose record fits. If none runs, it starts one with the first of the
// candidates with which that works.
func (c *Containers) obtain(ctx context.Context, name string, fits func(record) bool, candidates []networks.Network) (*container, func(), error) {
	store, err := c.store()
	if err != nil {
		return nil, nil, err
	}
	unlock, err := c.lock(ctx, name, unix.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	p, release, err := c.join(ctx, c.running(store, name, fits))
	unlock()
	if p != nil || err != nil {
		return p, release, err
	}
	var errs []error
	for _, n := range candidates {
		p, release, err := c.replace(ctx, store, n, fits)
		if err == nil {
			return p, release, nil
		}
		errs = append(errs, err)
	}
	return nil, nil, errors.Join(errs...)
}

// replace starts a network's container, unless another launcher has started one that fits meanwhile. It has fetched the
// image before it takes the network's lock: that may take long, and a container that runs stays until there is an image.
func (c *Containers) replace(ctx context.Context, store *pods.Store, n networks.Network, fits func(record) bool) (*container, func(), error) {
	fetched, err := c.lockFile(ctx, n.Name, fetchFile, unix.LOCK_EX)
	if err != nil {
		return nil, nil, err
	}
	image, unpin, err := c.Image(ctx, n.ACI)
	fetched()
	if err != nil {
		return nil, nil, err
	}
	defer unpin()
	unlock, err := c.lock(ctx, n.Name, unix.LOCK_EX)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	p := c.running(store, n.Name, fits)
	if p == nil {
		if p, err = c.start(ctx, store, n, image); err != nil {
			return nil, nil, err
		}
	}
	return c.join(ctx, p)
}

// join makes a container, if it is not nil, stay until release is called. The caller has the network's lock.
func (c *Containers) join(ctx context.Context, p *container) (_ *container, release func(), err error) {
	if p == nil {
		return nil, nil, nil
	}
	release, err = c.lockFile(ctx, p.pod.Plan.Name, callsFile, unix.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	return p, release, nil
}

// awaitCalls waits until no call of the network is under way, or those that are have had their time. The caller
// has the network's lock, so that no other call begins.
func (c *Containers) awaitCalls(ctx context.Context, name string) error {
	limited, cancel := context.WithTimeout(ctx, callsPatience)
	defer cancel()
	release, err := c.lockFile(limited, name, callsFile, unix.LOCK_EX)
	if err != nil {
		if ctx.Err() == nil && limited.Err() != nil {
			return nil // they end with the container
		}
		return err
	}
	release()
	return nil
}

// running returns the network's container if it runs and its record fits.
func (c *Containers) running(store *pods.Store, name string, fits func(record) bool) *container {
	r, err := c.readRecord(name)
	if err != nil || !fits(r) {
		return nil
	}
	pod, err := store.Get(r.Pod)
	if err != nil || pod.State.Phase != pods.Running {
		return nil
	}
	return &container{pod: pod, log: filepath.Join(c.dir(name), logFile)}
}
