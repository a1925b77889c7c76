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

// Plugin returns a network's plugin; it is networks.Connector's Plugin.
func (c *Containers) Plugin(network string) networks.Plugin { return &plugin{c, network} }

// plugin implements networks.Plugin: each call finds the container that runs then, because another launcher may
// have replaced it meanwhile.
type plugin struct {
	containers *Containers
	network    string
}

// Start implements networks.Plugin.
func (p *plugin) Start(ctx context.Context) error {
	_, release, err := p.containers.use(ctx, p.network)
	if err != nil {
		return fmt.Errorf("start plugin of network %q: %w", p.network, err)
	}
	release()
	return nil
}

// Add implements networks.Plugin. If the plugin's container ends meanwhile, `del` undoes in another one what the call
// has done, and the call is repeated.
func (p *plugin) Add(ctx context.Context, call networks.Call) ([]byte, error) {
	output, err := p.add(ctx, call)
	if !errors.Is(err, errLost) {
		return output, err
	}
	if err := p.Del(ctx, call); err != nil {
		return nil, err
	}
	return p.add(ctx, call)
}

func (p *plugin) add(ctx context.Context, call networks.Call) ([]byte, error) {
	c, release, err := p.containers.use(ctx, p.network)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.run(ctx, call, arguments("add", call)...)
}

// Del implements networks.Plugin. If the plugin's container ends meanwhile, the call is repeated in another one.
func (p *plugin) Del(ctx context.Context, call networks.Call) error {
	return again(func() error { return p.del(ctx, call) })
}

func (p *plugin) del(ctx context.Context, call networks.Call) error {
	c, release, err := p.containers.useAny(ctx, p.network)
	if err != nil {
		return err
	}
	defer release()
	_, err = c.run(ctx, call, arguments("del", call)...)
	return err
}

// use returns the container that is set up with the configuration. It starts one unless it runs.
func (c *Containers) use(ctx context.Context, name string) (*container, func(), error) {
	n, err := networks.Find(c.Networks, name)
	if err != nil {
		return nil, nil, err
	}
	return c.obtain(ctx, n, func(r record) bool { return r.Entry == n.Entry })
}

// useAny returns any container that is set up: its entry may be newer than this launcher's configuration. If none
// runs, it starts one with the image and the entry of the last setup, because the pods that are connected are known
// to those.
func (c *Containers) useAny(ctx context.Context, name string) (*container, func(), error) {
	r, err := c.readRecord(name)
	if err != nil || !isSetUp(r) {
		return c.use(ctx, name)
	}
	return c.obtain(ctx, networks.Network{Name: name, ACI: r.Image, Entry: r.Entry}, isSetUp)
}

// isSetUp reports whether a record is of a setup.
func isSetUp(r record) bool { return r.Entry != "" }

// obtain returns a network's container if its record fits, and starts one as the network says if none runs.
func (c *Containers) obtain(ctx context.Context, n networks.Network,
	fits func(record) bool,
) (*container, func(), error) {
	unlock, err := c.lock(ctx, n.Name, unix.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	p, release, err := c.joinRunning(ctx, n.Name, fits)
	unlock()
	if p != nil || err != nil {
		return p, release, err
	}
	return c.replace(ctx, n, fits)
}

// replace starts a network's container, unless another launcher has started one that fits meanwhile. It has fetched
// the image before it takes the network's lock: that may take long, and a container that runs stays until there is an
// image.
func (c *Containers) replace(ctx context.Context, n networks.Network,
	fits func(record) bool,
) (*container, func(), error) {
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
	if p, release, err := c.joinRunning(ctx, n.Name, fits); p != nil || err != nil {
		return p, release, err
	}
	p, err := c.start(ctx, n, image)
	if err != nil {
		return nil, nil, err
	}
	return c.join(ctx, p)
}

// joinRunning joins the network's container if it runs and its record fits; else it returns no container.
func (c *Containers) joinRunning(ctx context.Context, name string, fits func(record) bool) (*container, func(), error) {
	p, err := c.running(ctx, name, fits)
	if p == nil || err != nil {
		return nil, nil, err
	}
	return c.join(ctx, p)
}

// join makes a container stay until release is called. The caller has the network's lock.
func (c *Containers) join(ctx context.Context, p *container) (_ *container, release func(), err error) {
	release, err = c.lockFile(ctx, p.pod.Plan.Name, callsFile, unix.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	return p, release, nil
}

// awaitCalls waits until no call of the network is under way, or the calls under way have had their time. The caller
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

// running returns the network's container if its record fits and its main process runs; else nil. The error is that
// of a ctx that has ended.
func (c *Containers) running(ctx context.Context, name string, fits func(record) bool) (*container, error) {
	r, err := c.readRecord(name)
	if err != nil || !fits(r) {
		return nil, nil
	}
	pod, err := c.store().Get(r.Pod)
	if err != nil || pod.State.Phase != pods.Running {
		return nil, nil
	}
	p := &container{pod: pod, log: filepath.Join(c.dir(name), logFile)}
	if up, err := p.isUp(ctx); !up || err != nil {
		return nil, err
	}
	return p, nil
}
