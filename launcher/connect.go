package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/plugins"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/pflag"
)

// netFlags collects --net.
type netFlags struct {
	host, none bool
	requests   []networks.Request
}

// declare declares the flag.
func (f *netFlags) declare(flags *pflag.FlagSet) {
	flags.Var(f, "net", "connect to a network of the configuration, `NETWORK[:OPTIONS]`; \"host\" for the host's network, \"none\" for only a loopback device")
}

// String implements pflag.Value.
func (f *netFlags) String() string { return "" }

// Type implements pflag.Value.
func (f *netFlags) Type() string { return "NETWORK" }

// Set implements pflag.Value.
func (f *netFlags) Set(text string) error {
	if f.host || f.none || len(f.requests) > 0 && (text == networks.HostName || text == networks.NoneName) {
		return errors.New("\"host\" and \"none\" stand alone")
	}
	switch text {
	case "":
		return errors.New("want a network")
	case networks.HostName:
		f.host = true
	case networks.NoneName:
		f.none = true
	default:
		r, err := networks.ParseRequest(text)
		if err != nil {
			return err
		}
		f.requests = append(f.requests, r)
	}
	return nil
}

// check reports a network that the configuration does not have as an error of the command's line.
func (f *netFlags) check(command string, all []networks.Network) error {
	for _, r := range f.requests {
		if _, err := networks.Find(all, r.Name); err != nil {
			return usageError{command + ": " + err.Error() + "; --net host and --net none are always there"}
		}
	}
	return nil
}

// monitor returns the command line of a detached monitor with this configuration, whose working
// directory is another one.
func (c *cli) monitor() []string {
	argv := []string{os.Args[0]}
	for _, o := range [][2]string{{"--config", c.configFile}, {"--state", c.state}} {
		if o[1] == "" {
			continue
		}
		path := o[1]
		if abs, err := filepath.Abs(path); err == nil { // without a working directory, only an absolute path works
			path = abs
		}
		argv = append(argv, o[0], path)
	}
	return append(argv, "monitor")
}

// connector connects pods to the networks of the configuration.
func (c *cli) connector() *networks.Connector {
	return &networks.Connector{Plugin: func(network string) (networks.Plugin, error) {
		containers, err := c.containers()
		if err != nil {
			return nil, err
		}
		return containers.Plugin(network), nil
	}}
}

// containers are the plugin containers of the configuration's networks.
func (c *cli) containers() (*plugins.Containers, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(c.config.NetworksDirectory) // its folders are volumes of the containers
	if err != nil {
		return nil, err
	}
	return &plugins.Containers{
		Dir:      dir,
		Networks: c.networks,
		Cgroup:   c.config.ParentCgroupName,
		Image:    c.pluginImage,
		Planner:  c.pluginPlanner,
		Monitor:  c.monitor(),
		Hold:     self,
	}, nil
}

// pluginImage returns the image of a plugin: one of the store, or of a source. It must be signed by a
// trusted key, as the stager must, because a plugin has the powers of the host's root.
func (c *cli) pluginImage(ctx context.Context, aci string) (*images.Image, func(), error) {
	store, catalog, err := c.catalog()
	if err != nil {
		return nil, nil, err
	}
	if aci, err = c.obtain(ctx, aci); err != nil {
		return nil, nil, err
	}
	release, err := store.Pin()
	if err != nil {
		return nil, nil, err
	}
	image, err := catalog.Plugin(aci)
	if err != nil {
		release()
		return nil, nil, err
	}
	return image, release, nil
}

// pluginPlanner plans the pods of plugin containers.
func (c *cli) pluginPlanner() (*podplan.Planner, error) {
	_, catalog, err := c.catalog()
	if err != nil {
		return nil, err
	}
	ref, err := c.obtain(context.Background(), c.config.DefaultStagerImage)
	if err != nil {
		return nil, err
	}
	stager, err := catalog.Stager(ref)
	if err != nil {
		return nil, err
	}
	config, err := pluginStagerConfig(c.config.DefaultStagerConfig)
	if err != nil {
		return nil, err
	}
	return &podplan.Planner{Images: catalog, Stager: stager, StagerConfig: config, CheckSource: pods.CheckSource}, nil
}

// pluginStagerConfig is the configuration of a plugin container's stager: the administrator's,
// without what is about the pods of others. A plugin needs the host's namespaces and all
// capabilities, and its container stays.
func pluginStagerConfig(config json.RawMessage) (json.RawMessage, error) {
	if config == nil {
		return nil, nil
	}
	var object strictjson.Object
	if err := json.Unmarshal(config, &object); err != nil {
		return nil, err
	}
	for _, key := range []string{"requiredNamespaces", "defaultNamespaces", "forbid", "strictIsolators", "exitPolicy", "restart"} {
		object.Take(key)
	}
	return json.Marshal(object)
}

// collectNetworks stops the plugin containers of networks that no pod of the store uses. A pod that could not be
// disconnected uses its networks.
func (c *cli) collectNetworks(ctx context.Context, store *pods.Store) ([]string, error) {
	containers, err := c.containers()
	if err != nil {
		return nil, err
	}
	return containers.Collect(ctx, usesNetwork(store))
}

// usesNetwork returns a function that reports whether a pod of the store uses a network.
func usesNetwork(store *pods.Store) func(network string) (bool, error) {
	return func(network string) (bool, error) {
		all, err := store.List()
		for _, pod := range all {
			if slices.ContainsFunc(pod.Plan.Networks, func(a networks.Attachment) bool { return a.Network == network }) && (pod.State.Phase != pods.Exited || pod.StillConnected() != nil) {
				return true, err
			}
		}
		return false, err
	}
}
