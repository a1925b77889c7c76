package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/networks"
)

// makeRoom takes the store's lock and lists the pods, when it has disconnected the dead pods that share networks
// or ports with the plan's pod. It tries each once: what stays connected is for the caller to judge. The caller
// closes the lock.
func (s *Store) makeRoom(ctx context.Context, plan Plan) (*os.File, []*Pod, error) {
	tried, need := make(map[string]bool), plan.needs()
	for {
		store, err := s.lockStore()
		if err != nil {
			return nil, nil, err
		}
		all, err := s.List()
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		inTheWay := slices.DeleteFunc(slices.Clone(all),
			func(p *Pod) bool { return tried[p.Plan.UUID] || !p.isInTheWay(need) })
		if len(inTheWay) == 0 {
			return store, all, nil
		}
		_ = store.Close() // a plugin's `del` may take long
		for _, p := range inTheWay {
			if err := context.Cause(ctx); err != nil {
				return nil, nil, err
			}
			tried[p.Plan.UUID] = true
			if err := s.settle(ctx, p, p.contends(need)); err != nil {
				return nil, nil, err
			}
		}
	}
}

// needs is the part of a new pod's plan that it cannot share with another pod.
type needs struct {
	Plan
	addresses map[string][]netip.Addr // requested, by network
}

func (p Plan) needs() needs {
	n := needs{p, make(map[string][]netip.Addr)}
	for _, a := range p.Networks {
		if asked := a.Addresses(); len(asked) > 0 {
			n.addresses[a.Network] = asked
		}
	}
	return n
}

// isInTheWay reports whether the pod is dead, and its networks keep something that the new pod may need. If a
// pod's monitor is gone while its lock is held, another process takes the pod down.
func (p *Pod) isInTheWay(n needs) bool {
	if p.alive() {
		if !p.contends(n) || p.State.Monitor.PID == 0 {
			return false
		}
		ended, err := p.State.Monitor.ended()
		return ended && err == nil
	}
	shares := slices.ContainsFunc(n.Networks, func(a networks.Attachment) bool { return p.attachment(a.Network) != nil })
	return (shares || p.contends(n)) && p.lingers()
}

// contends reports whether the pod's plan has the name, a port or an address of the new pod.
func (p *Pod) contends(n needs) bool {
	if p.Plan.Name == n.Name || slices.ContainsFunc(n.Ports,
		func(port networks.PortMapping) bool { return publishedBy(port, p.Plan.Ports) }) {
		return true
	}
	for network, asked := range n.addresses {
		if haveOne(p.asksFor(network), asked).IsValid() {
			return true
		}
	}
	return false
}

// haveOne returns the first address of one list that the other has; it is not valid if there is none.
func haveOne(list, other []netip.Addr) netip.Addr {
	for _, address := range list {
		if slices.Contains(other, address) {
			return address
		}
	}
	return netip.Addr{}
}

// attachment returns the pod's attachment to the network, or nil.
func (p *Pod) attachment(network string) *networks.Attachment {
	i := slices.IndexFunc(p.Plan.Networks, func(a networks.Attachment) bool { return a.Network == network })
	if i < 0 {
		return nil
	}
	return &p.Plan.Networks[i]
}

// asksFor returns the addresses that the pod's plan asks for on the network.
func (p *Pod) asksFor(network string) []netip.Addr {
	if a := p.attachment(network); a != nil {
		return a.Addresses()
	}
	return nil
}

// lingers reports whether the pod has no monitor and is still connected to its networks. The networks of
// a pod that was connected before the machine was restarted are gone with its network namespace. A namespace that
// cannot be looked at counts as there.
func (p *Pod) lingers() bool {
	if len(p.Plan.Networks) == 0 || p.State.Phase != Dead && p.StillConnected() == nil {
		return false
	}
	pinned, err := networks.IsPinned(p.pin())
	return pinned || err != nil
}

// lingering is the error of a pod that lingers.
func (p *Pod) lingering() error {
	if err := p.StillConnected(); err != nil {
		return err
	}
	return fmt.Errorf("pod %q is dead and could not be taken down; launcher gc tries again", p.Plan.Name)
}

// settle disconnects a pod that was found dead, unless another process does or has done: it waits for that one if
// wait is set. The pod's state on disk says what has become of it; the error is not the networks'.
func (s *Store) settle(ctx context.Context, p *Pod, wait bool) error {
	lock, err := openLock(filepath.Join(p.Dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has been deleted meanwhile
	}
	if err != nil {
		return err
	}
	locked, err := filelock.Hold(lock)
	waited := !locked
	if err != nil || waited && !wait {
		return errors.Join(err, lock.Close())
	}
	if waited {
		ctx, cancel := p.withinItsEnd(ctx)
		defer cancel()
		if err := awaitLock(ctx, lock); err != nil {
			return err
		}
	}
	defer lock.Close()
	if p.readState(false) != nil || waited && p.State.DisconnectError != "" {
		return nil // deleted, or the other process could not disconnect it
	}
	return s.settleLocked(p, lock)
}

// settleLocked is settle for a pod whose lock this process has.
func (s *Store) settleLocked(p *Pod, lock *os.File) error {
	if !p.lingers() {
		return nil
	}
	k := s.keep(*p, lock)
	if k.State.Phase == Exited {
		_ = k.disconnectOnce(false) // the state has the error
		return k.save()
	}
	_ = s.clear(k, p.ending()) // the state has the error, or the pod stays dead
	return nil
}

// checkAddresses returns an error that names a pod that has ended and could not be disconnected, if it has an address
// that the plan asks for.
func checkAddresses(plan Plan, all []*Pod) error {
	for network, asked := range plan.needs().addresses {
		for _, pod := range all {
			if pod.alive() || pod.attachment(network) == nil || !pod.lingers() {
				continue
			}
			if address := haveOne(pod.addresses(network), asked); address.IsValid() {
				return fmt.Errorf("address %s of network %q already used: %w", address, network, pod.lingering())
			}
		}
	}
	return nil
}

// addresses returns the addresses that a pod has, or asks for, on the network.
func (p *Pod) addresses(network string) []netip.Addr {
	all := p.asksFor(network)
	for _, c := range p.Connections() {
		if c.Name == network {
			all = append(all, c.Addresses()...)
		}
	}
	return all
}
