package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// attachments returns the pods that are connected to the network, as libcni has recorded them.
func attachments(lib *libcni.CNIConfig, n *network) ([]*libcni.NetworkAttachment, error) {
	all, err := lib.GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("list connected pods: %w", err)
	}
	var own []*libcni.NetworkAttachment
	for _, a := range all {
		if a.Network == n.list.Name {
			own = append(own, a)
		}
	}
	return own, nil
}

// collect removes what belongs to no pod that is connected, such as after a crash: it disconnects the pods
// whose network namespace is gone, frees addresses without an owner, and calls GC, where the configuration's version
// has it. No other call may run meanwhile: its record may be one that is being written.
func (c *cni) collect(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	if err := os.RemoveAll(filepath.Join(c.cache, nextDir)); err != nil { // of calls that were killed
		return err
	}
	if err := c.disconnectGone(ctx, lib, n); err != nil {
		return err
	}
	if err := c.freeOwnerless(n.list.Name); err != nil {
		return fmt.Errorf("free addresses without an owner: %w", err)
	}
	connected, err := attachments(lib, n)
	if err != nil {
		return err
	}
	valid := []types.GCAttachment{}
	for _, a := range connected {
		valid = append(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	if err := lib.GCNetworkList(ctx, n.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("collect leftovers of earlier pods: %w", err)
	}
	return nil
}

// freeOwnerless removes the addresses of a network that host-local has reserved for no pod: killed between the making
// of an address' file and the writing of the pod into it, host-local leaves an empty file, which no DEL removes.
func (c *cni) freeOwnerless(network string) error {
	dir := filepath.Join(c.data, "networks", network)
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			return err
		}
		if net.ParseIP(file.Name()) == nil || info.Size() > 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, file.Name())); err != nil {
			return err
		}
	}
	return nil
}

// isGone reports whether the pod of an attachment is gone: as the launcher says, else by its network namespace.
func (c *cni) isGone(a *libcni.NetworkAttachment) bool {
	if c.pods != nil {
		return !slices.Contains(c.pods, a.ContainerID)
	}
	return !exists(a.NetNS)
}

// disconnectGone calls DEL for the pods that are gone: their launcher was killed, or it has deleted them although DEL
// had failed. A DEL that fails again is in the log only, since the network's next pods do not depend on it.
func (c *cni) disconnectGone(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	connected, err := attachments(lib, n)
	if err != nil {
		return err
	}
	for _, a := range connected {
		if !c.isGone(a) {
			continue
		}
		own, err := c.attachedNetwork(a)
		if err == nil {
			rt := runtimeOf(a)
			rt.NetNS = "" // as CNI wants it: the path may be another process's by now, such as one of the host
			err = c.del(ctx, own, rt)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "disconnect deleted pod %s: %v\n", a.ContainerID, err)
		}
	}
	return nil
}

// attachedNetwork reads the configuration with which a pod was connected: the network's may have changed since, and the
// pod has to be disconnected by the plugins that have connected it.
func (c *cni) attachedNetwork(a *libcni.NetworkAttachment) (*network, error) {
	n, err := parse(a.Config)
	if err != nil {
		return nil, err
	}
	n.RuntimeConfig = a.CapabilityArgs
	return n, c.fitToPod(n)
}

// runtimeOf is what libcni needs to know of a pod that is connected.
func runtimeOf(a *libcni.NetworkAttachment) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName,
		Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs,
	}
}

// checkPods calls CHECK for each pod that is connected, where the configuration's version has
// it. It ignores a pod that is being connected, or is disconnected meanwhile.
func (c *cni) checkPods(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	connected, err := attachments(lib, n)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range connected {
		own, err := c.attachedNetwork(a)
		if err != nil {
			return err
		}
		if own.list.DisableCheck || !hasCheck(own.list.CNIVersion) {
			continue
		}
		rt := runtimeOf(a)
		if r, err := c.read(own, rt); err != nil || r.Connecting {
			errs = append(errs, err)
			continue
		}
		if err := lib.CheckNetworkList(ctx, own.list, rt); err != nil && exists(a.NetNS) && exists(c.recordFile(own, rt)) {
			errs = append(errs, fmt.Errorf("pod %s: %w", a.ContainerID, err))
		}
	}
	return errors.Join(errs...)
}

// exists tells whether there is a file. One that cannot be looked at counts as there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
