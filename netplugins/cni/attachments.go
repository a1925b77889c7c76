package main

import (
	"context"
	"errors"
	"fmt"
	"os"

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

// collect calls GC, where the configuration's version has it: the plugins remove what belongs to no
// pod that is connected, such as after a crash. A pod that is being connected is not recorded yet, so
// no other call may run meanwhile.
func (c *cni) collect(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	connected, err := attachments(lib, n)
	if err != nil {
		return err
	}
	valid := []types.GCAttachment{}
	for _, a := range connected {
		valid = append(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
	}
	if err := lib.GCNetworkList(ctx, n.list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("collect what is left of earlier pods: %w", err)
	}
	return nil
}

// checkPods calls CHECK for each pod that is connected, where the configuration's version has
// it. It ignores a pod that is disconnected meanwhile.
func (c *cni) checkPods(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	if n.list.DisableCheck || !hasCheck(n.list.CNIVersion) {
		return nil
	}
	connected, err := attachments(lib, n)
	if err != nil {
		return err
	}
	var errs []error
	for _, a := range connected {
		rt := &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
		list, err := sparingLoopback(n.list, a.CapabilityArgs)
		if err != nil {
			return err
		}
		if err := lib.CheckNetworkList(ctx, list, rt); err != nil && exists(a.NetNS) && exists(c.cached(n, rt)) {
			errs = append(errs, fmt.Errorf("pod %s: %w", a.ContainerID, err))
		}
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
