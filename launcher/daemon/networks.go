package daemon

import (
	"context"
	"encoding/json"
	"slices"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/plugins"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
)

// Connector connects network namespaces to the networks of the configuration: namespaces of the daemon's pods, and a
// caller's own namespaces, with attachments of networks.Attach. The programs of Options must be known.
func (d *Daemon) Connector() *networks.Connector {
	return &networks.Connector{CallTime: d.callTime, Plugin: d.containers().Plugin}
}

// containers are the plugin containers of the configuration's networks.
func (d *Daemon) containers() *plugins.Containers {
	return &plugins.Containers{
		Dir:      d.config.NetworksDirectory,
		Networks: d.networks,
		Cgroup:   d.config.ParentCgroupName,
		Image:    d.pluginImage,
		Planner:  d.pluginPlanner,
		Monitor:  d.programs.Monitor,
		Hold:     d.programs.Hold,
		CallTime: d.callTime,
		Live:     d.livePods,
	}
}

// pluginImage returns the image of a plugin: one of the store, or of a source. It and its dependencies must be signed
// by trusted keys, as the stager must, because a plugin has the powers of the host's root.
func (d *Daemon) pluginImage(ctx context.Context, aci string) (*images.Image, func(), error) {
	catalog, err := d.catalog()
	if err != nil {
		return nil, nil, err
	}
	var id string
	release, err := d.pinned(func() error {
		id, err = d.obtain(ctx, aci, "")
		return err
	}, func() bool { return d.isGone(aci, id) })
	if err != nil {
		return nil, nil, err
	}
	image, err := catalog.Plugin(id)
	if err != nil {
		release()
		return nil, nil, err
	}
	return image, release, nil
}

// pluginPlanner plans the pods of plugin containers.
func (d *Daemon) pluginPlanner(ctx context.Context) (*podplan.Planner, error) {
	catalog, err := d.catalog()
	if err != nil {
		return nil, err
	}
	ref, err := d.obtain(ctx, d.config.DefaultStagerImage, "")
	if err != nil {
		return nil, err
	}
	stager, err := findStager(catalog, ref)
	if err != nil {
		return nil, err
	}
	config, err := pluginStagerConfig(d.config.DefaultStagerConfig)
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
	for _, key := range []string{
		"requiredNamespaces", "defaultNamespaces", "userNamespace", "forbid", "strictIsolators", "exitPolicy", "restart",
	} {
		object.Take(key)
	}
	return json.Marshal(object)
}

// PruneNetworks stops the plugins of networks that no pod uses, and returns the networks' names, also with an error. An
// ended pod that could not be disconnected uses its networks.
func (d *Daemon) PruneNetworks(ctx context.Context) ([]string, error) {
	return d.containers().Collect(ctx, usesNetwork(d.pods()))
}

// usesNetwork returns a function that reports whether a pod of the store uses a network.
func usesNetwork(store *pods.Store) func(network string) (bool, error) {
	return func(network string) (bool, error) {
		all, err := store.List()
		return anyUses(all, network), err
	}
}

// anyUses reports whether one of the pods uses a network: it is connected, or may be, such as one that is starting.
func anyUses(all []*pods.Pod, network string) bool {
	return slices.ContainsFunc(all, func(pod *pods.Pod) bool {
		return (pod.State.Phase != pods.Exited || pod.StillConnected() != nil) &&
			slices.ContainsFunc(pod.Plan.Networks, func(a networks.Attachment) bool { return a.Network == network })
	})
}

// NetworkInfo describes a network.
type NetworkInfo struct {
	Name      string `json:"name"`
	ACI       string `json:"aci"`
	Interface string `json:"containerInterface,omitempty"` // the template
	Default   bool   `json:"default,omitempty"`
	// whether the main process of the plugin's container runs, with this configuration
	Running bool   `json:"running"`
	Image   string `json:"image,omitempty"` // ID of the plugin's image, once it has been used
	PID     int    `json:"pid,omitempty"`   // the stager of the plugin's container
	Log     string `json:"log"`             // what the plugin has written to stderr

	// Only of InspectNetwork.
	Configuration json.RawMessage `json:"configuration,omitempty"`
	Pods          []NetworkPod    `json:"pods,omitempty"`
}

// NetworkPod is a pod that is connected to a network.
type NetworkPod struct {
	UUID      string `json:"uuid"`
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	networks.Result
}

func describeNetwork(ctx context.Context, containers *plugins.Containers, n networks.Network) (NetworkInfo, error) {
	state, err := containers.State(ctx, n)
	return NetworkInfo{
		Name:      n.Name,
		ACI:       n.ACI,
		Interface: n.Interface,
		Default:   n.Default,
		Running:   state.Running,
		Image:     state.Image,
		PID:       state.PID,
		Log:       state.Log,
	}, err
}

// DescribeNetworks describes the networks of the configuration.
func (d *Daemon) DescribeNetworks(ctx context.Context) ([]NetworkInfo, error) {
	containers := d.containers()
	var all []NetworkInfo
	for _, n := range d.networks {
		info, err := describeNetwork(ctx, containers, n)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

// InspectNetwork describes a network of the configuration, and the pods that are connected to it.
func (d *Daemon) InspectNetwork(ctx context.Context, name string) (NetworkInfo, error) {
	n, err := networks.Find(d.networks, name)
	if err != nil {
		return NetworkInfo{}, err
	}
	info, err := describeNetwork(ctx, d.containers(), n)
	if err != nil {
		return NetworkInfo{}, err
	}
	info.Configuration = json.RawMessage(n.Entry)
	all, err := d.Pods()
	for _, pod := range all {
		for _, connection := range pod.Connections() {
			if connection.Name == name {
				info.Pods = append(info.Pods, NetworkPod{pod.Plan.UUID, pod.Plan.Name, connection.Interface, connection.Result})
			}
		}
	}
	return info, err
}

// ValidateNetwork starts the network's plugin and sets it up with the configuration, see plugins.Containers.Validate.
func (d *Daemon) ValidateNetwork(ctx context.Context, name string) error {
	n, err := networks.Find(d.networks, name)
	if err != nil {
		return err
	}
	return d.containers().Validate(ctx, n)
}
