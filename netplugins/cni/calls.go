package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
)

// The plugins of a list are called one by one, and not by libcni's ADD and DEL of a list: this ADD keeps no result of
// the plugins that have worked if a later one fails or is killed, and this DEL ends at the first plugin that fails.

// addAll calls ADD of each plugin, and returns the output of the last. It records each result before the next plugin is
// called.
func (c *cni) addAll(ctx context.Context, n *network, rt *libcni.RuntimeConf) ([]byte, error) {
	r, e := newRecord(n, rt), &executor{}
	if err := c.write(n, rt, r); err != nil {
		return nil, err
	}
	for i := range n.list.Plugins {
		path, config, err := c.prepare(n, i, rt, r.Result)
		if err != nil {
			return nil, err
		}
		result, err := invoke.ExecPluginWithResult(ctx, path, config, c.arguments("ADD", rt), e)
		if err != nil {
			return nil, err
		}
		if r.Result, err = json.Marshal(result); err != nil {
			return nil, err
		}
		r.Connecting = i < len(n.list.Plugins)-1
		if err := c.write(n, rt, r); err != nil {
			return nil, err
		}
	}
	return e.last, nil
}

// delAll calls DEL of each plugin, the last first, removes what firewall leaves, and returns the errors of all. result
// is of the last ADD that has worked, nil for none. Each plugin has its share of the time, so that one that hangs does
// not keep the others from their work.
func (c *cni) delAll(ctx context.Context, n *network, rt *libcni.RuntimeConf, result json.RawMessage) error {
	addresses, err := c.notOthers(rt, podAddresses(result))
	if err != nil {
		return err
	}
	if !hasCheck(n.list.CNIVersion) { // so has DEL a result
		result = nil
	}
	var errs []error
	for i := len(n.list.Plugins) - 1; i >= 0; i-- {
		share, cancel := shareOf(ctx, i+1)
		path, config, err := c.prepare(n, i, rt, result)
		if err == nil {
			err = invoke.ExecPluginWithoutResult(share, path, config, c.arguments("DEL", rt), &executor{})
		}
		if n.list.Plugins[i].Network.Type == "firewall" {
			err = errors.Join(err, sweepFirewall(share, addresses))
		}
		cancel()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// shareOf returns the context of the next of so many calls, which has its part of the time that ctx has left.
func shareOf(ctx context.Context, calls int) (context.Context, context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		return context.WithCancel(ctx)
	}
	share := time.Until(end) / time.Duration(calls)
	return context.WithTimeoutCause(ctx, share, fmt.Errorf("not done within %v", share.Round(time.Millisecond)))
}

// prepare returns the program of a plugin of the list, and its configuration: the keys that libcni adds as well.
func (c *cni) prepare(n *network, i int, rt *libcni.RuntimeConf,
	previous json.RawMessage,
) (path string, config []byte, err error) {
	p := n.list.Plugins[i]
	if path, err = invoke.FindInPath(p.Network.Type, c.path); err != nil {
		return "", nil, err
	}
	keys := map[string]any{"name": n.list.Name, "cniVersion": n.list.CNIVersion}
	if previous != nil {
		keys["prevResult"] = previous
	}
	runtime := make(map[string]any)
	for capability, on := range p.Network.Capabilities {
		if value, given := rt.CapabilityArgs[capability]; on && given {
			runtime[capability] = value
		}
	}
	if len(runtime) > 0 {
		keys["runtimeConfig"] = runtime
	}
	if p, err = libcni.InjectConf(p, keys); err != nil {
		return "", nil, fmt.Errorf("plugins[%d]: %w", i, err)
	}
	return path, p.Bytes, nil
}

// arguments are a plugin's.
func (c *cni) arguments(command string, rt *libcni.RuntimeConf) *invoke.Args {
	return &invoke.Args{
		Command: command, ContainerID: rt.ContainerID, NetNS: rt.NetNS, IfName: rt.IfName, PluginArgs: rt.Args,
		Path: strings.Join(c.path, ":"),
	}
}
