package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// Files of a pod that is connected to networks.
const (
	networksFile = "networks.json"
	pinFile      = "netns"
)

func (p *Pod) recordFile() string { return filepath.Join(p.Dir, networksFile) }

func (p *Pod) pin() string { return filepath.Join(p.Dir, pinFile) }

// Connection is a network that a pod is connected to.
type Connection struct {
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	networks.Result
}

// Connections returns the networks that the pod is connected to, with what their plugins
// returned, in the order of its plan. A pod without networks, or that has ended, has none.
func (p *Pod) Connections() []Connection {
	record, err := networks.ReadRecord(p.recordFile())
	if err != nil {
		return nil // connected to none, or only in part
	}
	var all []Connection
	for i, result := range record.Results[:min(len(record.Results), len(p.Plan.Networks))] {
		a := p.Plan.Networks[i]
		all = append(all, Connection{a.Network, a.Interface, result})
	}
	return all
}

// Interfaces returns what the interfaces of the pod's network namespace have carried, as proc_pid_net(5) has it in dev.
func (p *Pod) Interfaces() (string, error) {
	stager := p.State.Stager
	fd, err := stager.open()
	if err != nil {
		return "", fmt.Errorf("read network of pod %q: %w", p.Plan.Name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", stager.PID))
	if err == nil {
		err = stager.send(fd, 0) // the process is still alive, so the PID was its own all the time
	}
	if err != nil {
		return "", fmt.Errorf("read network of pod %q: %w", p.Plan.Name, err)
	}
	return string(text), nil
}

// connected is what the plugins of a pod's networks have returned.
type connected struct {
	results []networks.Result
	err     error
}

// connect makes the pod's network namespace, and connects it to the networks in the background. The
// channel gets one value. Nothing of the pod may be taken down before.
func (k *Keeper) connect(ctx context.Context) (<-chan connected, error) {
	done := make(chan connected, 1)
	if len(k.Plan.Networks) == 0 {
		done <- connected{}
		return done, k.writeOwnHosts()
	}
	if k.connector == nil {
		return nil, errors.New("connect pod to its networks: no configuration of networks")
	}
	err := k.makeHosts()
	if err != nil {
		return nil, err
	}
	if k.namespace, err = networks.Make(k.pin()); err != nil {
		return nil, err
	}
	go func() {
		results, err := k.connector.Connect(ctx, k.recordFile(), k.Plan.UUID, k.namespace.Path(), k.Plan.Networks)
		k.tried = err != nil
		done <- connected{results, err}
	}()
	return done, nil
}

// useNameServers writes resolv.conf into the stager's root, where the host's is, if the networks say what is in it.
func (k *Keeper) useNameServers(results []networks.Result) error {
	root, err := os.OpenRoot(filepath.Join(k.Dir, rootDir))
	if err != nil {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	defer root.Close()
	host, err := root.ReadFile(resolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	dns := networks.Names(k.Plan.Networks, results, string(host))
	if dns == nil {
		return nil
	}
	if err := writeNew(root, resolvConf, []byte(dns.ResolvConf())); err != nil {
		return fmt.Errorf("write resolv.conf: %w", err)
	}
	return nil
}

// ErrConnected says that a pod has ended, and a network's plugin has not disconnected it.
var ErrConnected = errors.New("still connected to its networks")

// StillConnected returns an error in one line, which wraps ErrConnected, if the pod has ended and could
// not be disconnected from its networks; else nil.
func (p *Pod) StillConnected() error {
	if p.State.DisconnectError == "" {
		return nil
	}
	return fmt.Errorf("pod %q has ended, but is %w: %s; launcher gc tries again, and launcher rm --force deletes the "+
		"pod in any case",
		cmp.Or(p.Plan.Name, p.Plan.UUID), ErrConnected, p.State.DisconnectError)
}

// disconnectOnce disconnects the pod and notes in its state whether that worked. deleted says that
// the pod is deleted in any case.
func (k *Keeper) disconnectOnce(deleted bool) error {
	err := k.disconnect()
	if err == nil {
		k.State.DisconnectError = ""
		return nil
	}
	k.State.DisconnectError = strings.Join(strings.Split(err.Error(), "\n"), "; ")
	if deleted {
		return fmt.Errorf("pod %q is deleted, but its networks still hold resources for it: %s",
			cmp.Or(k.Plan.Name, k.Plan.UUID), k.State.DisconnectError)
	}
	return k.StillConnected()
}

// disconnect disconnects the pod from its networks and removes its network namespace. Without
// an error nothing is left; after one, disconnect may be repeated.
func (k *Keeper) disconnect() error {
	left := k.leaveHosts() // before another pod gets the addresses
	return errors.Join(left, k.disconnectNetworks())
}

func (k *Keeper) disconnectNetworks() error {
	if k.namespace != nil {
		defer func() { k.namespace.Close(); k.namespace = nil }()
	}
	_, err := os.Stat(k.recordFile())
	if errors.Is(err, fs.ErrNotExist) {
		return networks.Remove(k.pin())
	}
	if err != nil {
		return err
	}
	if k.tried {
		return errors.New("disconnect: connecting failed, and so did the del that undoes it")
	}
	if k.connector == nil {
		return errors.New("disconnect: no configuration of networks")
	}
	if k.namespace == nil {
		if k.namespace, err = networks.Reopen(k.pin()); err != nil {
			return err
		}
		defer func() { k.namespace.Close(); k.namespace = nil }()
	}
	err = k.connector.Disconnect(context.Background(), k.recordFile(), k.Plan.UUID, k.namespace.Path(), k.Plan.Networks)
	if err != nil {
		return err
	}
	return networks.Remove(k.pin())
}
