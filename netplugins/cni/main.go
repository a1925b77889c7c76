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
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

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
	lib, _ := c.library()
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
func (c *cni) library() (*libcni.CNIConfig, *executor) {
	e := &executor{}
	return libcni.NewCNIConfigWithCacheDir(c.path, c.cache, e), e
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

// Add implements plugin.Plugin. libcni does not undo an ADD that has failed, and a Kurma daemon
// of 2016 does not call `del` then.
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
	lib, executor := c.library()
	if _, err = lib.AddNetworkList(ctx, n.list, rt); err == nil {
		var result *plugin.Result
		if result, err = convert(executor.last); err == nil {
			return result, nil
		}
	}
	return nil, errors.Join(err, c.undo(context.WithoutCancel(ctx), n, rt))
}

// undo is the DEL of a failed ADD; its error matters only beside the ADD's.
func (c *cni) undo(ctx context.Context, n *network, rt *libcni.RuntimeConf) error {
	ctx, cancel := context.WithTimeout(ctx, plugin.UndoTime)
	defer cancel()
	if err := c.del(ctx, n, rt, false); err != nil {
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
	return c.del(ctx, n, rt, false)
}

// del calls DEL, and removes what a DEL leaves if an earlier one was killed, or if the pod's network namespace is gone.
func (c *cni) del(ctx context.Context, n *network, rt *libcni.RuntimeConf, gone bool) error {
	done, interrupted, err := c.begin(n, rt)
	if err != nil {
		return err
	}
	if err := c.delAll(ctx, n, rt); err != nil {
		return err
	}
	if (interrupted || gone) && n.masquerades() {
		lock, err := lockTables(ctx)
		if err != nil {
			return err
		}
		defer lock.Close()
		if err := sweep(n.list.Name, rt); err != nil {
			return err
		}
	}
	return done()
}

// delAll calls DEL of the list, and if a plugin fails, which ends libcni's DEL, of each plugin
// alone, the last first.
func (c *cni) delAll(ctx context.Context, n *network, rt *libcni.RuntimeConf) error {
	lib, _ := c.library()
	err := lib.DelNetworkList(ctx, n.list, rt)
	if err == nil || len(n.list.Plugins) == 1 {
		return err
	}
	var errs []error
	for i := len(n.list.Plugins) - 1; i >= 0; i-- {
		errs = append(errs, c.delOne(ctx, n, i, rt))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = os.Remove(c.cached(n, rt))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// delOne calls DEL of one plugin of the list. It works on a copy of libcni's cache, because
// libcni removes the result that the other plugins still need.
func (c *cni) delOne(ctx context.Context, n *network, i int, rt *libcni.RuntimeConf) error {
	dir, err := os.MkdirTemp(c.cache, "del-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what stays is removed with the cache
	if result, err := os.ReadFile(c.cached(n, rt)); err == nil {
		if err := os.Mkdir(filepath.Join(dir, "results"), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "results", filepath.Base(c.cached(n, rt))), result, 0o600); err != nil {
			return err
		}
	}
	one := *n.list
	one.Plugins = n.list.Plugins[i : i+1]
	alone := *rt
	alone.CacheDir = dir
	lib, _ := c.library()
	return lib.DelNetworkList(ctx, &one, &alone)
}

// cached is libcni's file of a pod's result.
func (c *cni) cached(n *network, rt *libcni.RuntimeConf) string {
	return filepath.Join(c.cache, "results", fmt.Sprintf("%s-%s-%s", n.list.Name, rt.ContainerID, rt.IfName))
}

// runtime is what libcni needs to know of a pod.
func (c *cni) runtime(n *network, pod plugin.Pod) (*libcni.RuntimeConf, error) {
	if pod.Interface == "" {
		return nil, errors.New("no interface is given: the network's configuration has no containerInterface")
	}
	return &libcni.RuntimeConf{
		ContainerID:    pod.UUID,
		NetNS:          pod.Namespace,
		IfName:         pod.Interface,
		CapabilityArgs: n.RuntimeConfig,
	}, nil
}
