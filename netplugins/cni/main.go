// Command cni is cni-netplugin: it connects pods by CNI plugins. A network's configuration is a
// CNI network configuration (with `type`) or a list (with `plugins`) beside Kurma's own keys.
//
// The plugins are in /opt/cni/bin, and an operator's own in /var/lib/network/bin. What CNI
// plugins and libcni keep, addresses above all, is in /run/network: after a restart of the
// machine every address is free again.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"

	"kurma.io/stager/netplugins/plugin"
)

func main() {
	plugin.Main(&cni{
		path:    []string{"/opt/cni/bin", plugin.StateDir + "/bin"},
		cache:   plugin.RunDir + "/cache",
		data:    plugin.RunDir + "/cni", // /var/lib/cni is a link to it
		backend: plugin.RunDir + "/backend",
		check:   os.Getenv("NETWORK_CHECK") != "",
		idle:    os.Getenv("NETWORK_IDLE") != "",
		pods:    podsOf(os.LookupEnv("NETWORK_PODS")),
		args:    argsOf(os.Getenv("CNI_ARGS")),
	})
}

// cni is the plugin.
type cni struct {
	path    []string // where CNI plugins are
	cache   string   // libcni's folder
	data    string   // the CNI plugins' folder
	backend string   // file of the backend that setup has chosen: iptables or nftables
	check   bool     // setup also checks the pods that are connected
	idle    bool     // no other call runs while setup runs
	pods    []string // those that may be connected; nil if that is not known
	args    [][2]string
}

// argsOf returns the pairs of CNI_ARGS, which the caller gives for a pod.
func argsOf(text string) (all [][2]string) {
	for pair := range strings.SplitSeq(text, ";") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			all = append(all, [2]string{key, value})
		}
	}
	return all
}

// podsOf returns the UUIDs in a variable, nil without the variable.
func podsOf(text string, there bool) []string {
	if !there {
		return nil
	}
	return append([]string{}, strings.Fields(text)...)
}

// Setup implements plugin.Plugin.
func (c *cni) Setup(ctx context.Context, config []byte) error {
	n, err := parse(config)
	if err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return err
	}
	if err := c.makeFolders(); err != nil {
		return err
	}
	lib := c.library()
	if err := c.checkPlugins(ctx, lib, n); err != nil {
		return err
	}
	if err := c.startDHCP(ctx, lib, n); err != nil {
		return err
	}
	if err := lib.GetStatusNetworkList(ctx, n.list); err != nil {
		return fmt.Errorf("status of plugins: %w", err)
	}
	return c.lookAfterPods(ctx, lib, n)
}

// lookAfterPods frees the leftovers of pods, and checks the pods, if setup is to do so.
func (c *cni) lookAfterPods(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	if c.idle {
		if err := c.collect(ctx, lib, n); err != nil {
			return err
		}
	}
	if c.check {
		return c.checkPods(ctx, lib, n)
	}
	return nil
}

// checkPlugins finds out whether the network's plugins are there and work on this machine.
func (c *cni) checkPlugins(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	if _, err := lib.ValidateNetworkList(ctx, n.list); err != nil {
		return fmt.Errorf("check plugins: %w", err)
	}
	if err := c.findIPAM(n); err != nil {
		return fmt.Errorf("check plugins: %w", err)
	}
	if err := n.probe(ctx); err != nil {
		return err
	}
	return c.decide(lib, n)
}

// findIPAM looks for the IPAM plugins, which libcni does not check: their plugins execute them.
func (c *cni) findIPAM(n *network) error {
	for i, kind := range n.ipam {
		if kind == "" {
			continue
		}
		if _, err := invoke.FindInPath(kind, c.path); err != nil {
			return fmt.Errorf("plugins[%d]: ipam: %w", i, err)
		}
	}
	return nil
}

// makeFolders makes what libcni and the CNI plugins write to. A daemon of 2016 may call `add` before
// the main process has made them.
func (c *cni) makeFolders() error {
	for _, dir := range []string{c.cache, c.data} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return nil
}

// library returns libcni with our way of executing plugins.
func (c *cni) library() *libcni.CNIConfig {
	return libcni.NewCNIConfigWithCacheDir(c.path, c.cache, &executor{})
}

// podNetwork reads the configuration of a pod's network, as the plugins get it for this pod.
func (c *cni) podNetwork(config []byte) (*network, error) {
	n, err := parse(config)
	if err != nil {
		return nil, err
	}
	return n, c.fitToPod(n)
}

// fitToPod makes of a network's configuration what the plugins get for a pod with its runtimeConfig.
func (c *cni) fitToPod(n *network) (err error) {
	if err := n.setBackend(c.remembered()); err != nil {
		return err
	}
	n.list, err = sparingLoopback(n.list, n.RuntimeConfig)
	return err
}

// Add implements plugin.Plugin. CNI has an ADD that has failed undone by its caller, and a Kurma daemon of 2016 does
// not call `del` then.
func (c *cni) Add(ctx context.Context, config []byte, pod plugin.Pod) (*plugin.Result, error) {
	n, err := c.podNetwork(config)
	if err != nil {
		return nil, err
	}
	rt, err := c.runtime(n, pod)
	if err != nil {
		return nil, err
	}
	if err := c.makeFolders(); err != nil {
		return nil, err
	}
	output, err := c.addAll(ctx, n, rt)
	if err == nil {
		var result *plugin.Result
		if result, err = convert(output); err == nil {
			return result, nil
		}
	}
	return nil, errors.Join(err, c.undo(context.WithoutCancel(ctx), n, rt))
}

// undo is the DEL of a failed ADD; its error matters only beside the ADD's.
func (c *cni) undo(ctx context.Context, n *network, rt *libcni.RuntimeConf) error {
	ctx, cancel := context.WithTimeout(ctx, plugin.UndoTime)
	defer cancel()
	if err := c.del(ctx, n, rt); err != nil {
		return fmt.Errorf("undo: %w", err)
	}
	return nil
}

// Del implements plugin.Plugin.
func (c *cni) Del(ctx context.Context, config []byte, pod plugin.Pod) error {
	n, err := c.podNetwork(config)
	if err != nil {
		return err
	}
	rt, err := c.runtime(n, pod)
	if err != nil {
		return err
	}
	return c.del(ctx, n, rt)
}

// del calls DEL of each plugin, and removes what these leave. After an error the pod's record stays, and del may be
// repeated.
func (c *cni) del(ctx context.Context, n *network, rt *libcni.RuntimeConf) error {
	r, err := c.read(n, rt)
	if err != nil {
		return err
	}
	addresses := podAddresses(r.Result)
	sweeps := n.masquerades() && !hasAddresses(rt, addresses)
	err = c.delAll(ctx, n, rt, r.Result)
	if sweeps {
		err = errors.Join(err, sweepAlone(ctx, n.list.Name, rt))
	}
	if err = errors.Join(err, plugin.Flush(addresses)); err != nil {
		return err
	}
	return c.forget(n, rt)
}

// runtime is what libcni needs to know of a pod.
func (c *cni) runtime(n *network, pod plugin.Pod) (*libcni.RuntimeConf, error) {
	if pod.Interface == "" {
		return nil, errors.New("no interface is given: the network's configuration has no containerInterface")
	}
	for _, invalid := range []*types.Error{ // as libcni checks them
		utils.ValidateContainerID(pod.UUID), utils.ValidateNetworkName(n.list.Name),
		utils.ValidateInterfaceName(pod.Interface),
	} {
		if invalid != nil {
			return nil, invalid
		}
	}
	return &libcni.RuntimeConf{
		ContainerID:    pod.UUID,
		NetNS:          pod.Namespace,
		IfName:         pod.Interface,
		Args:           c.args,
		CapabilityArgs: n.RuntimeConfig,
	}, nil
}
