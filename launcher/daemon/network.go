package daemon

import (
	"context"
	"encoding/json"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/plugins"
)

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
