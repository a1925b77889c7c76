package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
)

// Collect stops the containers of networks that no pod uses, and deletes dead ones. Of these networks, it has the
// plugins delete networks that are not in the configuration. It starts the container of a network that a pod uses
// again if the container has ended. used reports whether a pod uses a network; it is called with the network's lock
// held, so that a pod that is made later waits. Collect returns the names of the networks that it has deleted, and of
// the others with a container that it has stopped, each once.
func (c *Containers) Collect(ctx context.Context, used func(network string) (bool, error)) ([]string, error) {
	found, err := c.names()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	done, err := c.deleteNetworks(ctx, found, used)
	errs := []error{err}
	all, err := c.store().List()
	if err != nil {
		return nil, errors.Join(append(errs, err)...)
	}
	for _, pod := range all {
		name := pod.Plan.Name
		if pod.Damage != nil || !networks.IsName(name) {
			continue // Store.Collect deletes it
		}
		stopped, err := c.collect(ctx, pod, used)
		if stopped {
			done = append(done, name)
		}
		errs = append(errs, err)
	}
	for _, name := range found {
		errs = append(errs, c.restore(ctx, name, used))
	}
	_, err = c.store().Collect(ctx)
	slices.Sort(done)
	return slices.Compact(done), errors.Join(append(errs, err)...)
}

// Idle returns the names of the networks that Collect would return now if no plugin failed. It changes nothing.
func (c *Containers) Idle(used func(network string) bool) ([]string, error) {
	found, err := c.names()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	containers, err := c.store().List()
	if err != nil {
		return nil, err
	}
	var idle []string
	for _, pod := range containers {
		if pod.Damage == nil && networks.IsName(pod.Plan.Name) {
			idle = append(idle, pod.Plan.Name)
		}
	}
	for _, name := range found {
		if r, err := c.readRecord(name); err == nil && c.isLeft(name, r) {
			idle = append(idle, name)
		}
	}
	slices.Sort(idle)
	return slices.DeleteFunc(slices.Compact(idle), used), nil
}

func (c *Containers) collect(ctx context.Context, pod *pods.Pod, used func(string) (bool, error)) (bool, error) {
	unlock, err := c.lock(ctx, pod.Plan.Name, unix.LOCK_EX)
	if err != nil {
		return false, err
	}
	defer unlock()
	if is, err := used(pod.Plan.Name); is || err != nil {
		return false, err
	}
	if err = c.store().Stop(ctx, pod); errors.Is(err, pods.ErrConnected) {
		err = nil // Store.Collect disconnects it next, or says why not
	}
	return true, err
}

// deleteNetworks has the plugins delete the networks that have left the configuration, and returns their
// names.
func (c *Containers) deleteNetworks(ctx context.Context, names []string,
	used func(string) (bool, error),
) ([]string, error) {
	var done []string
	var errs []error
	for _, name := range names {
		if r, err := c.readRecord(name); err != nil || !c.isLeft(name, r) {
			continue
		}
		deleted, err := c.deleteNetwork(ctx, name, used)
		if err != nil {
			errs = append(errs, fmt.Errorf("delete network %q, which is not in the configuration: %w", name, err))
		}
		if deleted {
			done = append(done, name)
		}
	}
	return done, errors.Join(errs...)
}

// isLeft reports whether a network has left the configuration and its plugin has to delete it.
func (c *Containers) isLeft(name string, r record) bool {
	_, err := networks.Find(c.Networks, name)
	return err != nil && networks.IsName(name) && r.Removes
}

// deleteNetwork calls the plugin's `remove`, in the network's container or in one that it starts for this,
// and stops the container. After an error the record stays, so that the next Collect tries again.
func (c *Containers) deleteNetwork(ctx context.Context, name string, used func(string) (bool, error)) (bool, error) {
	unlock, err := c.lock(ctx, name, unix.LOCK_EX)
	if err != nil {
		return false, err
	}
	defer unlock()
	if is, err := used(name); is || err != nil {
		return false, err
	}
	r, err := c.readRecord(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // another launcher has deleted the network meanwhile
	}
	if err != nil {
		return false, err
	}
	err = again(func() error { return c.remove(ctx, name, r) })
	return err == nil, errors.Join(err, c.stop(context.WithoutCancel(ctx), name))
}

// remove calls the plugin's `remove`, in a container that it starts unless one runs, and deletes the record. The
// caller has the network's lock.
func (c *Containers) remove(ctx context.Context, name string, r record) error {
	p, err := c.running(ctx, name, isSetUp)
	if err != nil {
		return err
	}
	if p == nil {
		image, unpin, err := c.Image(ctx, r.Image)
		if err != nil {
			return err
		}
		p, _, err = c.begin(ctx, name, image, r)
		unpin() // the container's pod uses the image now
		if err != nil {
			return err
		}
	}
	limited, cancel := networks.LimitCall(ctx, c.CallTime)
	defer cancel()
	call := networks.Call{Config: cmp.Or(r.Entry, "{}")} // without an entry, `setup` has never ended
	if _, err := p.run(limited, call, removePath); err != nil {
		return err
	}
	return os.Remove(filepath.Join(c.dir(name), recordFile))
}
