package main

import (
	"context"
	"errors"
	"net/netip"
	"os"

	"kurma.io/stager/netplugins/plugin"
)

// begin chooses the addresses of a pod's endpoint and puts it on record. The caller has the lock.
func (r *remote) begin(s *settings, w wishes, network string, pod plugin.Pod) (*endpoint, error) {
	n, err := load[networkRecord](r.state.networkFile(network))
	if err != nil {
		return nil, err
	}
	used, err := r.state.addresses()
	if err != nil {
		return nil, err
	}
	if n.Last == nil {
		n.Last = make(map[string]netip.Addr)
	}
	e := &endpoint{ID: endpointID(s.Name, pod.UUID, pod.Interface), Network: network, Driver: s.Driver, Boot: r.state.boot}
	if e.Addresses, err = s.choose(w.ips, used, n.Last); err != nil {
		return nil, err
	}
	return e, errors.Join(save(r.state.networkFile(network), n), save(r.state.endpointFile(e.ID), e))
}

// connect makes the endpoint, and the pod's link. What it has done when it fails is in e, for undo.
func (r *remote) connect(
	ctx context.Context, d *driver, s *settings, w wishes, e *endpoint, pod plugin.Pod,
) (*plugin.Result, error) {
	options, err := s.endpointOptions(w.labels)
	if err != nil {
		return nil, err
	}
	given := address{MacAddress: w.mac}
	for _, prefix := range e.Addresses {
		if prefix.Addr().Is4() {
			given.Address = prefix.String()
		} else {
			given.AddressIPv6 = prefix.String()
		}
	}
	var created createdEndpoint
	request := createEndpoint{e.Network, e.ID, options, given}
	if err := r.step(ctx, d, e, &e.Created, "CreateEndpoint", request, &created); err != nil {
		return nil, err
	}
	addresses, err := settle(given, created.Interface)
	if err != nil {
		return nil, d.wrong("CreateEndpoint", err)
	}
	var answer joined
	if err := r.step(ctx, d, e, &e.Joined, "Join", join{e.Network, e.ID, pod.Namespace, options}, &answer); err != nil {
		return nil, err
	}
	l, err := answer.link(addresses)
	if err != nil {
		return nil, d.wrong("Join", err)
	}
	if err := r.attach(e, l, pod); err != nil {
		return nil, err
	}
	err = r.step(ctx, d, e, &e.External, "ProgramExternalConnectivity",
		externalConnectivity{e.Network, e.ID, options}, nil)
	if err != nil && !notFound(err) {
		return nil, err
	}
	r.ask(ctx, s.Driver, e)
	return l.result(), nil
}

// ask asks the driver about an endpoint, as Docker does after each Join: a driver may wait for it. As with Docker, the
// answer does not matter.
func (r *remote) ask(ctx context.Context, driver string, e *endpoint) {
	_ = r.impatient(driver).network(ctx, "EndpointOperInfo", endpointOnly{e.Network, e.ID}, nil)
}

// step calls the driver. *done is on disk as true before, and as false again if the driver did not do
// it: it has answered so, or has not been reached.
func (r *remote) step(
	ctx context.Context, d *driver, e *endpoint, done *bool, method string, request, response any,
) error {
	file := r.state.endpointFile(e.ID)
	*done, e.Pending = true, method
	if err := save(file, e); err != nil {
		return err
	}
	err := d.network(ctx, method, request, response)
	if errors.Is(err, errNoAnswer) {
		return err
	}
	if answered(err) || isSilent(err) {
		*done = false
	}
	e.Pending = ""
	return errors.Join(err, save(file, e))
}

// attach puts the driver's link into the pod.
func (r *remote) attach(e *endpoint, l link, pod plugin.Pod) error {
	name, err := r.links.choose(pod, l)
	if err != nil {
		return err
	}
	e.Link = &movedLink{l.Source, name}
	if err := save(r.state.endpointFile(e.ID), e); err != nil {
		return err
	}
	return r.links.attach(pod, name, l)
}

// undo undoes connect, also one that was killed. What the driver answers to it is reported, but not
// asked again; what it does not answer stays on record for the next undo. Without a namespace in pod
// the link has gone with it.
func (r *remote) undo(ctx context.Context, d *driver, e *endpoint, pod plugin.Pod) error {
	u := &undoing{r: r, d: d, e: e, unsure: e.Pending}
	u.tell(ctx, &e.External, "RevokeExternalConnectivity", "ProgramExternalConnectivity")
	u.tell(ctx, &e.Joined, "Leave", "Join")
	if e.Link != nil {
		err := r.links.detach(pod, *e.Link)
		if err == nil {
			e.Link = nil
		}
		u.errs = append(u.errs, err)
	}
	u.tell(ctx, &e.Created, "DeleteEndpoint", "CreateEndpoint")
	file := r.state.endpointFile(e.ID)
	if !e.Created && !e.Joined && !e.External && e.Link == nil {
		return errors.Join(append(u.errs, drop(file))...)
	}
	return errors.Join(append(u.errs, save(file, e))...)
}

// undoing is the state of an undo.
type undoing struct {
	r      *remote
	d      *driver
	e      *endpoint
	unsure string // the method that was under way when the endpoint was left
	silent bool   // the driver does not answer
	errs   []error
}

// tell calls a method that undoes another one, if that was done. If either was under way before, or the
// driver got the request twice, it may not know the endpoint, and what it answers does not matter.
func (u *undoing) tell(ctx context.Context, done *bool, method, undone string) {
	if !*done || u.silent {
		return
	}
	u.e.Pending = method
	if err := save(u.r.state.endpointFile(u.e.ID), u.e); err != nil {
		u.errs = append(u.errs, err)
		return
	}
	err := u.d.network(ctx, method, endpointOnly{u.e.Network, u.e.ID}, nil)
	if isSilent(err) {
		u.silent = true
		u.errs = append(u.errs, err)
		return
	}
	*done, u.e.Pending = false, ""
	settled := answered(err) && (!refused(err) || u.unsure == method || u.unsure == undone)
	if settled || method == "RevokeExternalConnectivity" && notFound(err) {
		return
	}
	u.errs = append(u.errs, err)
}

// check asks the driver about the pods that are connected.
func (r *remote) check(ctx context.Context, d *driver, network string) error {
	endpoints, err := r.state.endpoints(network)
	errs := []error{err}
	for _, e := range endpoints {
		err := d.network(ctx, "EndpointOperInfo", endpointOnly{e.Network, e.ID}, nil)
		if _, gone := os.Stat(r.state.endpointFile(e.ID)); gone == nil { // else it was disconnected meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
