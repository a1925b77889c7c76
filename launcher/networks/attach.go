package networks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kurma.io/stager/internal/strictjson"
)

// Attachment is a pod's connection to a network, as plain data. The pod's plan stores it,
// so that `del` gets the input of `add` even after changes of the configuration.
type Attachment struct {
	Network   string `json:"network"`
	Interface string `json:"interface,omitempty"`
	// Config is the stdin of `add` and `del`: the network's entry byte for byte, and what
	// Attach adds. A string, because JSON would change the white space of a raw value.
	Config string `json:"config"`
	// Args is the variable CNI_ARGS of `add` and `del`, "" for none.
	Args string `json:"args,omitempty"`
	// DNS is the pod's own choice of name servers, nil for none.
	DNS *DNS `json:"dns,omitempty"`
}

// PodOptions is what a pod brings along for its networks.
type PodOptions struct {
	UUID      string
	Ports     []PortMapping
	Bandwidth *Bandwidth // nil for no limit
	// NameServers are addresses, in place of those of the requests.
	NameServers []string
}

// Bandwidth is a limit in the form of CNI's capability bandwidth: rates in bits per second,
// bursts in bits.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// Attach decides a pod's attachments, in the order of the requests. Without a request the pod
// gets the networks that are the default. published reports whether one of the networks takes
// the pod's ports. An option that no plugin of its network takes is an error.
func Attach(all []Network, requests []Request, pod PodOptions) (attachments []Attachment, published bool, err error) {
	if len(requests) == 0 {
		requests = defaultRequests(all)
	}
	if len(pod.NameServers) > 0 && len(requests) > 0 {
		requests = slices.Clone(requests)
		requests[0].DNS.Nameservers = pod.NameServers // the first network with name servers decides
	}
	var used []string
	for _, r := range requests {
		n, err := Find(all, r.Name)
		if err != nil {
			return nil, false, err
		}
		if slices.ContainsFunc(attachments, func(a Attachment) bool { return a.Network == n.Name }) {
			return nil, false, fmt.Errorf("network %q is given twice", n.Name)
		}
		name, err := interfaceName(n.Interface, pod.UUID, used)
		if err != nil {
			return nil, false, fmt.Errorf("network %q: containerInterface: %w", n.Name, err)
		}
		if name != "" {
			used = append(used, name)
		}
		a := Attachment{Network: n.Name, Interface: name, Args: r.cniArgs()}
		takesPorts := false
		if a.Config, takesPorts, err = configure(n, r, pod, !published); err != nil {
			return nil, false, fmt.Errorf("network %q: %w", n.Name, err)
		}
		published = published || takesPorts
		if !r.DNS.isEmpty() {
			a.DNS = &r.DNS
		}
		attachments = append(attachments, a)
	}
	return attachments, published, nil
}

// defaultRequests are the requests of a pod that has none.
func defaultRequests(all []Network) (requests []Request) {
	for _, n := range all {
		if n.Default {
			requests = append(requests, Request{Name: n.Name})
		}
	}
	return requests
}

// configure adds to a network's entry what its capabilities and the request's labels ask for.
// Only the first network that takes the pod's ports gets them: a port of the host leads to one
// place.
func configure(n Network, r Request, pod PodOptions, ports bool) (config string, published bool, err error) {
	on, err := n.capabilities()
	if err != nil {
		return "", false, err
	}
	runtime := make(map[string]any)
	published = ports && on["portMappings"]
	if published && len(pod.Ports) > 0 {
		runtime["portMappings"] = pod.Ports
	}
	if on["bandwidth"] && pod.Bandwidth != nil {
		runtime["bandwidth"] = pod.Bandwidth
	}
	args := make(map[string]any)
	if err := r.fill(on, runtime, args); err != nil {
		return "", false, err
	}
	config = n.Entry
	if len(args) > 0 {
		if config, err = addArgs(config, args); err != nil {
			return "", false, err
		}
	}
	if len(runtime) > 0 {
		if config, err = addKey(config, "runtimeConfig", runtime); err != nil {
			return "", false, err
		}
	}
	return config, published, nil
}

// fill puts the request's options where the CNI conventions have them: as runtimeConfig for a
// plugin that has turned the capability on; else, if a plugin may ignore them, into
// args.cni.
func (r Request) fill(on map[string]bool, runtime, args map[string]any) error {
	if len(r.IPs) > 0 {
		if on["ips"] {
			runtime["ips"] = r.IPs
		} else {
			args["ips"] = r.IPs
		}
	}
	if len(r.Labels) > 0 {
		args["labels"] = sortedLabels(r.Labels)
	}
	if on["dns"] && !r.DNS.isEmpty() {
		runtime["dns"] = struct {
			Servers  []string `json:"servers,omitempty"`
			Searches []string `json:"searches,omitempty"`
			Options  []string `json:"options,omitempty"`
		}{r.DNS.Nameservers, r.DNS.Search, r.DNS.Options}
	}
	return r.fillRequired(on, runtime)
}

// fillRequired puts the options that no plugin may ignore into runtimeConfig.
func (r Request) fillRequired(on map[string]bool, runtime map[string]any) error {
	for _, o := range []struct {
		capability string
		isSet      bool
		value      any
	}{
		{"mac", r.MAC != "", r.MAC},
		{"ipRanges", len(r.IPRanges) > 0, r.IPRanges},
	} {
		switch {
		case !o.isSet:
		case !on[o.capability]:
			return fmt.Errorf("no plugin of the network has the capability %q", o.capability)
		default:
			runtime[o.capability] = o.value
		}
	}
	return nil
}

// cniArgs returns the value of CNI_ARGS. A plugin that does not know a key is to ignore it, unless the request says
// otherwise.
func (r Request) cniArgs() string {
	if len(r.Args) == 0 {
		return ""
	}
	isAbout := func(pair string) bool { return strings.HasPrefix(pair, "IgnoreUnknown=") }
	if slices.ContainsFunc(r.Args, isAbout) {
		return strings.Join(r.Args, ";")
	}
	return "IgnoreUnknown=1;" + strings.Join(r.Args, ";")
}

// label is a label as the CNI conventions write it.
type label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func sortedLabels(labels map[string]string) []label {
	var all []label
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, label{key, labels[key]})
	}
	return all
}

// addKey adds a key at the end of a JSON object and leaves the rest as it is.
func addKey(object, key string, value any) (string, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	end := strings.LastIndexByte(object, '}')
	if end < 0 {
		return "", errors.New("the entry is not an object")
	}
	comma := ","
	if strings.TrimSpace(object[:end]) == "{" {
		comma = ""
	}
	return object[:end] + comma + `"` + key + `":` + string(raw) + object[end:], nil
}

// addArgs adds to args.cni. An entry with args of its own is written again, because its value
// changes.
func addArgs(config string, cni map[string]any) (string, error) {
	var object strictjson.Object
	if err := json.Unmarshal([]byte(config), &object); err != nil {
		return "", err
	}
	if object["args"] == nil {
		return addKey(config, "args", map[string]any{"cni": cni})
	}
	args, err := membersOf[json.RawMessage](object["args"])
	if err != nil {
		return "", fmt.Errorf("args: %w", err)
	}
	own, err := membersOf[any](args["cni"])
	if err != nil {
		return "", fmt.Errorf("args.cni: %w", err)
	}
	maps.Copy(own, cni)
	raw, err := json.Marshal(own)
	if err != nil {
		return "", err
	}
	args["cni"] = raw
	if object["args"], err = json.Marshal(args); err != nil {
		return "", err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(object)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// membersOf returns the members of an object, to which the caller may add. A value that is missing or null has none.
func membersOf[V any](object json.RawMessage) (map[string]V, error) {
	members := make(map[string]V)
	if strictjson.IsNull(object) {
		return members, nil
	}
	return members, json.Unmarshal(object, &members)
}
