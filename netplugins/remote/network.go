package main

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"kurma.io/stager/netplugins/plugin"
)

// register registers with the driver, and tells one of global scope which nodes there are. Like Docker it
// goes on if the driver answers to that with an error, such as that it has no such method.
func (r *remote) register(ctx context.Context, d *driver, s *settings) error {
	scope, err := d.handshake(ctx)
	if err != nil || scope != "global" {
		return err
	}
	known, err := load[[]string](r.state.nodesFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	nodes := slices.Clone(s.Nodes)
	if s.Node != "" {
		nodes = append([]string{s.Node}, nodes...)
	}
	if err := d.announce(ctx, nodes, known, s.Node); err != nil {
		return err
	}
	return save(r.state.nodesFile(), nodes)
}

// announce tells the driver of all nodes, because a driver that was restarted has forgotten them, and of known nodes
// that are gone. self is this node.
func (d *driver) announce(ctx context.Context, nodes, known []string, self string) error {
	for _, address := range nodes {
		found := discovery{nodeDiscovery, node(address, self)}
		if err := d.network(ctx, "DiscoverNew", found, nil); err != nil && !answered(err) {
			return err
		}
	}
	for _, address := range known {
		if slices.Contains(nodes, address) {
			continue
		}
		gone := discovery{nodeDiscovery, node(address, "")}
		if err := d.network(ctx, "DiscoverDelete", gone, nil); err != nil && !answered(err) {
			return err
		}
	}
	return nil
}

// create creates the network, once in a boot of the machine. It first deletes leftovers of an unrecorded CreateNetwork
// and of an earlier boot. The caller has the lock.
func (r *remote) create(ctx context.Context, d *driver, s *settings, id string) error {
	if r.state.isCreated(id) {
		return nil
	}
	file := r.state.networkFile(id)
	if old, err := load[networkRecord](file); err == nil {
		if err := r.forget(ctx, old); err != nil {
			return err
		}
	}
	n := networkRecord{ID: id, Driver: s.Driver, Boot: r.state.boot}
	if err := save(file, n); err != nil {
		return err
	}
	err := d.network(ctx, "CreateNetwork", s.creation(id), nil)
	if refused(err) {
		return errors.Join(err, drop(file))
	}
	if err != nil {
		return errors.Join(err, r.forget(context.WithoutCancel(ctx), n))
	}
	n.Created = true
	return save(file, n)
}

// impatient returns a driver for calls whose errors do not matter.
func (r *remote) impatient(name string) *driver {
	return &driver{name: name, roots: r.roots, patience: patience{request: min(r.patience.request, 4*time.Second)}}
}

// forget deletes a network, and its endpoints of an earlier boot, as far as the driver knows them. The
// record stays if the driver does not answer, unless it is of an earlier boot. The caller has the lock.
func (r *remote) forget(ctx context.Context, n networkRecord) error {
	ctx, cancel := context.WithTimeout(ctx, plugin.UndoTime)
	defer cancel()
	d := r.impatient(n.Driver)
	endpoints, err := r.state.endpoints(n.ID)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		_ = r.undo(ctx, d, &e, plugin.Pod{}) // the driver may have forgotten it
		if err := drop(r.state.endpointFile(e.ID)); err != nil {
			return err
		}
	}
	err = d.network(ctx, "DeleteNetwork", networkOnly{n.ID}, nil)
	if err != nil && isSilent(err) && n.Boot == r.state.boot {
		return nil
	}
	return drop(r.state.networkFile(n.ID))
}

// forgetOthers deletes the networks of earlier configurations and boots, and reports whether pods are
// still connected to one. The caller has the lock.
func (r *remote) forgetOthers(ctx context.Context, id string) (inUse bool, err error) {
	records, err := r.state.networks()
	if err != nil {
		return false, err
	}
	for _, n := range records {
		if n.ID == id && n.Boot == r.state.boot {
			continue
		}
		endpoints, err := r.state.endpoints(n.ID)
		if err != nil {
			return false, err
		}
		if len(endpoints) > 0 && n.Boot == r.state.boot {
			inUse = true
			continue
		}
		if err := r.forget(ctx, n); err != nil {
			return false, err
		}
	}
	return inUse, nil
}

// deleteAll deletes every network. A network that the driver refuses to delete is an error once: asking
// again would not help. One that could not be deleted for lack of an answer stays on record.
func (r *remote) deleteAll(ctx context.Context) error {
	records, err := r.state.networks()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range records {
		if n.Boot != r.state.boot {
			errs = append(errs, r.forget(ctx, n))
			continue
		}
		d := r.driver(n.Driver)
		endpoints, err := r.state.endpoints(n.ID)
		if err != nil {
			return err
		}
		for _, e := range endpoints {
			errs = append(errs, r.undo(ctx, d, &e, plugin.Pod{}))
		}
		err = d.network(ctx, "DeleteNetwork", networkOnly{n.ID}, nil)
		if errs = append(errs, err); err == nil || !isSilent(err) {
			errs = append(errs, drop(r.state.networkFile(n.ID)))
		}
	}
	return errors.Join(errs...)
}
