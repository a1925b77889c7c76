package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/networks"

	"github.com/google/uuid"
)

// Kurma connects sandboxes to networks of the Kurma Network Specification. The networks' plugin containers outlive the
// server.
type Kurma struct {
	// Folder has the networks' entries; "" if CNI connects sandboxes.
	Folder string
	// Networks are those of the folder. A sandbox is connected to each that is the default.
	Networks []networks.Network
	// Connector is needed without a folder, too: an earlier configuration may have had one.
	Connector *networks.Connector
}

// connectionsFile is where, in a sandbox's folder, the networks.Record of its connections is.
const connectionsFile = "connections.json"

// attach decides how a sandbox is connected.
func (k *Kurma) attach(r records.Sandbox) ([]networks.Attachment, error) {
	pod := networks.PodOptions{UUID: uuidOf(r.ID), Ports: r.Ports}
	pod.Bandwidth, _ = bandwidthOf(r) // see CheckBandwidth
	attachments, published, err := networks.Attach(k.Networks, nil, pod)
	switch {
	case err != nil:
		return nil, err
	case len(attachments) == 0:
		return nil, fmt.Errorf(`no network in %s has "default": true`, k.Folder)
	case len(pod.Ports) > 0 && !published:
		return nil, fmt.Errorf("hostPort %d: no network in %s publishes ports, by the capability portMappings",
			pod.Ports[0].HostPort, k.Folder)
	}
	return attachments, nil
}

// connect connects the sandbox in that folder by the record's attachments, and sets the record's addresses, those of
// IPv4 first.
func (k *Kurma) connect(ctx context.Context, dir string, r *records.Sandbox) error {
	namespace, err := networks.Reopen(filepath.Join(dir, netPin))
	if err != nil {
		return fmt.Errorf("connect sandbox: %w", err)
	}
	defer namespace.Close()
	results, err := k.Connector.Connect(ctx, filepath.Join(dir, connectionsFile), uuidOf(r.ID), namespace.Path(),
		r.Attachments)
	if err != nil {
		return fmt.Errorf("connect sandbox: %w", err)
	}
	for _, result := range results {
		for _, address := range slices.Backward(result.Addresses()) {
			r.IPs = append(r.IPs, address.String())
		}
	}
	if len(r.IPs) == 0 {
		return errors.New("connect sandbox: the networks' plugins have assigned no address")
	}
	return nil
}

// disconnect undoes connect, also one that failed. It may be repeated. A plugin gets an empty namespace for one that a
// restart of the machine has ended.
func (k *Kurma) disconnect(ctx context.Context, dir string, r records.Sandbox) error {
	if r.Attachments == nil {
		return nil
	}
	namespace, err := networks.Reopen(filepath.Join(dir, netPin))
	if err != nil {
		return fmt.Errorf("disconnect sandbox: %w", err)
	}
	defer namespace.Close()
	err = k.Connector.Disconnect(ctx, filepath.Join(dir, connectionsFile), uuidOf(r.ID), namespace.Path(), r.Attachments)
	if err != nil {
		return fmt.Errorf("disconnect sandbox: %w", err)
	}
	return nil
}

// Connected returns the UUIDs of the sandboxes that may be connected to Kurma's networks.
func Connected(store *records.Store) ([]string, error) {
	all, err := store.Sandboxes()
	if err != nil {
		return nil, err
	}
	var connected []string
	for _, r := range all {
		if r.Attachments != nil && r.Phase != records.Stopped {
			connected = append(connected, uuidOf(r.ID))
		}
	}
	return connected, nil
}

// uuidOf is the UUID by which plugins know a sandbox.
func uuidOf(id string) string { return uuid.NewSHA1(uuid.Nil, []byte(id)).String() }
