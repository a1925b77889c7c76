// Command remote is remote-netplugin: it connects pods by network drivers that were written for Docker,
// over the libnetwork remote driver protocol. A network's configuration names the driver, and has the
// addresses and options that the driver is told.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"kurma.io/stager/netplugins/plugin"
)

func main() {
	r, err := open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	plugin.Main(r)
}

// remote is the plugin.
type remote struct {
	roots    []*root // where drivers are looked up, in this order
	links    linker
	state    state
	patience patience
	checks   bool // setup also checks the pods that are connected
}

// open opens what the plugin needs of the machine.
func open() (*remote, error) {
	// A volume in the container comes first: the daemon's /proc/1/root need not be the host's.
	own, err := openRoot("/")
	if err != nil {
		return nil, err
	}
	host, err := openRoot(plugin.HostRoot())
	if err != nil {
		return nil, err
	}
	links, err := openKernel()
	if err != nil {
		return nil, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	return &remote{
		[]*root{own, host}, links, state{plugin.StateDir, string(boot)}, dockerPatience(), os.Getenv("NETWORK_CHECK") != "",
	}, nil
}

func (r *remote) driver(name string) *driver {
	return &driver{name: name, roots: r.roots, patience: r.patience}
}

// Setup implements plugin.Plugin. It registers with the driver, and creates the network, unless pods are
// still connected to the network of an earlier configuration: a driver may refuse the same subnet twice.
// The first Add creates it then.
func (r *remote) Setup(ctx context.Context, config []byte) error {
	s, id, err := r.read(config)
	if err != nil {
		return err
	}
	unlock, err := r.state.lockNetworks(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := save(r.state.currentFile(), id); err != nil {
		return err
	}
	d := r.driver(s.Driver)
	if err := r.register(ctx, d, s); err != nil {
		return err
	}
	inUse, err := r.forgetOthers(ctx, id)
	if err != nil {
		return err
	}
	if !inUse {
		if err := r.create(ctx, d, s, id); err != nil {
			return err
		}
	}
	if r.checks {
		return r.check(ctx, d, id)
	}
	return nil
}

// read reads a configuration and returns the network's ID.
func (r *remote) read(config []byte) (*settings, string, error) {
	s, err := parse(config)
	if err != nil {
		return nil, "", err
	}
	id, err := s.networkID()
	return s, id, err
}

// Add implements plugin.Plugin. What an Add that failed leaves, it undoes itself: a Kurma daemon of 2016
// does not call `del` then.
func (r *remote) Add(ctx context.Context, config []byte, pod plugin.Pod) (*plugin.Result, error) {
	s, id, err := r.read(config)
	if err != nil {
		return nil, err
	}
	w, err := s.wishes()
	if err != nil {
		return nil, err
	}
	unlock, err := r.state.lockEndpoint(ctx, endpointID(s.Name, pod.UUID, pod.Interface))
	if err != nil {
		return nil, err
	}
	defer unlock()
	d := r.driver(s.Driver)
	e, err := r.reserve(ctx, d, s, w, id, pod)
	if err != nil {
		return nil, err
	}
	result, err := r.connect(ctx, d, s, w, e, pod)
	if err == nil {
		return result, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), plugin.UndoTime)
	defer cancel()
	if undoErr := r.undo(ctx, d, e, pod); undoErr != nil {
		err = errors.Join(err, fmt.Errorf("undo: %w", undoErr))
	}
	return nil, err
}

// reserve makes sure that the network exists, and puts a new endpoint on record. What an earlier Add for
// the pod may have left is undone first.
func (r *remote) reserve(
	ctx context.Context, d *driver, s *settings, w wishes, id string, pod plugin.Pod,
) (*endpoint, error) {
	unlock, err := r.state.lockNetworks(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !r.state.isCreated(id) { // a Kurma daemon of 2016 may call `add` before the main process has made it
		if err := r.register(ctx, d, s); err != nil {
			return nil, err
		}
		if err := r.create(ctx, d, s, id); err != nil {
			return nil, err
		}
	}
	if old, err := load[endpoint](r.state.endpointFile(endpointID(s.Name, pod.UUID, pod.Interface))); err == nil {
		if err := r.undo(ctx, r.driver(old.Driver), &old, pod); err != nil {
			return nil, fmt.Errorf("undo an earlier call for the pod: %w", err)
		}
	}
	return r.begin(s, w, id, pod)
}

// Del implements plugin.Plugin.
func (r *remote) Del(ctx context.Context, config []byte, pod plugin.Pod) error {
	s, err := parse(config)
	if err != nil {
		return err
	}
	e, err := r.disconnect(ctx, endpointID(s.Name, pod.UUID, pod.Interface), pod)
	if err != nil || e == nil {
		return err
	}
	current, err := load[string](r.state.currentFile())
	if err != nil || current == e.Network {
		return nil
	}
	unlock, err := r.state.lockNetworks(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = r.forgetOthers(ctx, current)
	return err
}

// disconnect undoes an endpoint and returns it, nil if there is none.
func (r *remote) disconnect(ctx context.Context, id string, pod plugin.Pod) (*endpoint, error) {
	unlock, err := r.state.lockEndpoint(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	file := r.state.endpointFile(id)
	e, err := load[endpoint](file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, drop(file)
	}
	if err != nil {
		return nil, err
	}
	return &e, r.undo(ctx, r.driver(e.Driver), &e, pod)
}

// Remove implements plugin.Remover.
func (r *remote) Remove(ctx context.Context, _ []byte) error {
	unlock, err := r.state.lockNetworks(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.deleteAll(ctx)
}
