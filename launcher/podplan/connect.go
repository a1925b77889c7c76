package podplan

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strings"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/manifest"
	decision "kurma.io/stager/plan"

	"github.com/appc/spec/schema/types"
)

const (
	// bandwidthIsolator limits a pod's network: {"default": true, "limit": "1M"}, in bytes per second.
	bandwidthIsolator = "resource/network-bandwidth"
	// bitsPerByte: CNI counts bits, the stager bytes.
	bitsPerByte = 8
)

// connect decides a pod's networks, and checks the pod's ports in any case. published reports whether a network takes
// the pod's ports.
func (p *Planner) connect(plan *pods.Plan, m *manifest.Manifest, o Options) (published bool, err error) {
	ports, err := portMappings(m)
	if err == nil {
		err = checkPublished(o.Publish)
	}
	if err != nil {
		return false, err
	}
	ports = append(ports, o.Publish...)
	switch {
	case plan.HostNetwork && len(o.Networks) > 0:
		return false, errors.New("a pod with the host's network cannot be connected to others")
	case (plan.HostNetwork || o.NoNetwork) && len(o.NameServers) > 0:
		return false, errNoNameServers
	case (plan.HostNetwork || o.NoNetwork) && len(o.Publish) > 0:
		return false, fmt.Errorf("port %s cannot be published: the pod is connected to no network", o.Publish[0])
	case plan.HostNetwork || o.NoNetwork:
		return false, nil
	}
	pod := networks.PodOptions{UUID: plan.UUID, Ports: ports, NameServers: o.NameServers}
	if pod.Bandwidth, err = bandwidth(m); err != nil {
		return false, err
	}
	plan.Networks, published, err = networks.Attach(p.Networks, o.Networks, pod)
	switch {
	case err != nil:
		return false, err
	case len(plan.Networks) == 0 && len(o.NameServers) > 0:
		return false, errNoNameServers
	case published:
		plan.Ports = ports
	case len(o.Publish) > 0:
		return false, fmt.Errorf("port %s cannot be published: %w", o.Publish[0], p.whyUnpublished(plan.Networks))
	}
	return published, nil
}

// errNoNameServers says that a pod's name servers are those of the host, or none.
var errNoNameServers = errors.New("name servers are set for a network, and the pod is connected to none")

// whyUnpublished is why a pod with these attachments can publish no port.
func (p *Planner) whyUnpublished(attached []networks.Attachment) error {
	var names []string
	for _, n := range p.Networks {
		if n.Publishes() {
			names = append(names, n.Name)
		}
	}
	switch {
	case len(p.Networks) == 0:
		return errors.New("the configuration has no network; the package kurma-netplugins has one")
	case len(names) == 0:
		return errors.New("no network of the configuration has the capability portMappings")
	case len(attached) == 0:
		return fmt.Errorf("no network is the default; want --net %s", strings.Join(names, " or "))
	}
	return fmt.Errorf("the pod's networks lack the capability portMappings; want --net %s", strings.Join(names, " or "))
}

func checkPublished(ports []networks.PortMapping) error {
	for _, port := range ports {
		if err := checkHostIP(port.HostIP); err != nil {
			return fmt.Errorf("port %s: %w", port, err)
		}
	}
	return nil
}

// portMappings lists the ports of the pod's manifest, one entry for each port of a range.
func portMappings(m *manifest.Manifest) ([]networks.PortMapping, error) {
	apps := appPorts(m)
	var all []networks.PortMapping
	for _, port := range m.Pod.Ports {
		to, known := leadsTo(port, apps)
		if !known {
			return nil, fmt.Errorf("port %q: no app has a port of that name", port.Name)
		}
		mappings, err := mappingsOf(port, to)
		if err != nil {
			return nil, fmt.Errorf("port %q: %w", port.Name, err)
		}
		all = append(all, mappings...)
	}
	return all, nil
}

// appPorts returns the ports of the pod's apps by their names.
func appPorts(m *manifest.Manifest) map[types.ACName]types.Port {
	apps := make(map[types.ACName]types.Port)
	for _, app := range m.Apps() {
		for _, port := range app.App.Ports {
			apps[port.Name] = port
		}
	}
	return apps
}

// leadsTo returns the port of an app that a port of the pod leads to: the pod's own choice, or that of its name; false
// for none.
func leadsTo(port types.ExposedPort, apps map[types.ACName]types.Port) (types.Port, bool) {
	if port.PodPort != nil {
		return *port.PodPort, true
	}
	to, known := apps[port.Name]
	return to, known
}

// mappingsOf lists the ports of the host that an exposed port takes, which lead to the ports of an app.
func mappingsOf(port types.ExposedPort, to types.Port) (all []networks.PortMapping, err error) {
	count := max(to.Count, 1)
	// Without a sum, which may overflow.
	if port.HostPort == 0 || count > networks.MaxPort || max(port.HostPort, to.Port) > networks.MaxPort+1-count {
		return nil, fmt.Errorf("%d ports from host port %d to port %d are not within 1 to %d", count,
			port.HostPort, to.Port, networks.MaxPort)
	}
	protocol := strings.ToLower(to.Protocol)
	if !networks.IsProtocol(protocol) {
		return nil, fmt.Errorf("protocol %q: want tcp, udp or sctp", to.Protocol)
	}
	ip := ""
	if port.HostIP != nil {
		ip = port.HostIP.String()
	}
	for i := range count {
		all = append(all, networks.PortMapping{
			HostPort: port.HostPort + i, ContainerPort: to.Port + i, Protocol: protocol, HostIP: ip,
		})
	}
	return all, checkHostIP(ip)
}

// checkHostIP reports whether a port of the host's address can lead to a pod.
func checkHostIP(ip string) error {
	if ip == net.IPv6loopback.String() {
		return fmt.Errorf("hostIP %s: Linux routes no packets from ::1 to a pod; want 127.0.0.1 or another address", ip)
	}
	return nil
}

// portWarnings warns of the pod's ports that are not on the host under the number
// that the pod asks for. No network of the pod takes its ports, so one is on the host only if
// the pod's network is the host's, under the number on which the app listens.
func portWarnings(m *manifest.Manifest, plan pods.Plan) []string {
	apps := appPorts(m)
	var all []string
	for _, port := range m.Pod.Ports {
		to, _ := leadsTo(port, apps) // connect has checked it
		switch {
		case !plan.HostNetwork:
			all = append(all, fmt.Sprintf("pod %q: port %q: host port %d is not forwarded; use --net host (the app listens "+
				"on %d)", plan.Name, port.Name, port.HostPort, to.Port))
		case to.Port != port.HostPort:
			all = append(all, fmt.Sprintf("pod %q: port %q: host port %d is not forwarded; the app listens on %d", plan.Name,
				port.Name, port.HostPort, to.Port))
		}
	}
	return all
}

// bandwidth is the limit of the pod's network, or that of its only app; nil for none. The stager
// limits the interfaces as well.
func bandwidth(m *manifest.Manifest) (*networks.Bandwidth, error) {
	isolators := m.Pod.Isolators
	if apps := m.Apps(); len(apps) == 1 {
		isolators = append(append([]manifest.Isolator{}, apps[0].Isolators...), isolators...)
	}
	var limit *networks.Bandwidth
	for _, isolator := range isolators {
		if isolator.Name != bandwidthIsolator {
			continue
		}
		bytes, err := decision.Rate(isolator.Value)
		if err != nil {
			return nil, fmt.Errorf("isolator %s: %s: %w", isolator.Name, strictjson.Show(isolator.Value), err)
		}
		rate := min(bytes, math.MaxUint64/bitsPerByte) * bitsPerByte
		// A tenth of a second's worth may pass at once.
		limit = &networks.Bandwidth{IngressRate: rate, IngressBurst: rate / 10, EgressRate: rate, EgressBurst: rate / 10}
	}
	return limit, nil
}
