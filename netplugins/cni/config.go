package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"
)

// network is a network's configuration.
type network struct {
	kurma
	list *libcni.NetworkConfigList
	ipam []string // types of the IPAM plugins
	keys map[string]json.RawMessage
}

// kurma are the keys that are not CNI's, and those that the daemon adds.
type kurma struct {
	Name          string                     `json:"name"`
	Interface     string                     `json:"containerInterface"`
	RuntimeConfig map[string]any             `json:"runtimeConfig"`
	Args          map[string]json.RawMessage `json:"args"`
	Plugins       []json.RawMessage          `json:"plugins"`
	Type          string                     `json:"type"`
	Capabilities  any                        `json:"capabilities"`
}

// check checks what Kurma's daemon makes of the configuration, and CNI ignores.
func (k *kurma) check() error {
	switch {
	case k.Interface == "":
		return errors.New("containerInterface: missing: CNI needs the interface's name")
	case len(k.Plugins) > 0 && k.Capabilities != nil:
		return errors.New("capabilities: beside plugins they turn on nothing: want them in an element of plugins")
	}
	return nil
}

// parse reads a network's configuration. The CNI plugins get it without Kurma's own keys: a
// plugin may refuse keys that it does not know.
func parse(config []byte) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(config, &n.kurma); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := json.Unmarshal(config, &n.keys); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	for _, key := range []string{"aci", "containerInterface", "default", "runtimeConfig"} {
		delete(n.keys, key)
	}
	var err error
	switch {
	case n.Name == "":
		return nil, errors.New("name: missing")
	case len(n.Plugins) > 0 && n.Type != "":
		return nil, errors.New("type and plugins are both given: want a configuration with type, or a list with plugins")
	case len(n.Plugins) > 0:
		n.list, err = n.parseList()
	case n.Type != "":
		n.list, err = parseSingle(n.keys)
	default:
		return nil, errors.New("neither type nor plugins is given: want the name of a CNI plugin, or a list")
	}
	if err != nil {
		return nil, err
	}
	return n, n.findIPAM()
}

// parseSingle makes a list of one plugin, as cnitool does.
func parseSingle(keys map[string]json.RawMessage) (*libcni.NetworkConfigList, error) {
	data, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	conf, err := libcni.NetworkPluginConfFromBytes(data)
	if err != nil {
		return nil, err
	}
	//nolint:staticcheck // deprecated as the format is; Kurma networks have it, and cnitool reads it so
	return libcni.ConfListFromConf(conf)
}

// parseList reads a list. CNI has args in the configuration of a plugin; those beside the list are
// for each of them.
func (n *network) parseList() (*libcni.NetworkConfigList, error) {
	list := maps.Clone(n.keys)
	delete(list, "args")
	data, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	all, err := libcni.NetworkConfFromBytes(data)
	if err != nil || len(n.Args) == 0 {
		return all, err
	}
	if all.Bytes, err = json.Marshal(n.keys); err != nil { // which libcni records, see attachedNetwork
		return nil, err
	}
	for i, p := range all.Plugins {
		if all.Plugins[i], err = n.addArgs(p); err != nil {
			return nil, fmt.Errorf("plugins[%d]: %w", i, err)
		}
	}
	return all, nil
}

// addArgs adds the network's args to those of a plugin, which override them.
func (n *network) addArgs(p *libcni.PluginConfig) (*libcni.PluginConfig, error) {
	var own struct {
		Args map[string]json.RawMessage `json:"args"`
	}
	if err := json.Unmarshal(p.Bytes, &own); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	args := maps.Clone(n.Args)
	maps.Copy(args, own.Args)
	return libcni.InjectConf(p, map[string]any{"args": args})
}

func (n *network) findIPAM() error {
	for i, p := range n.list.Plugins {
		var conf struct {
			IPAM struct {
				Type string `json:"type"`
			} `json:"ipam"`
		}
		if err := json.Unmarshal(p.Bytes, &conf); err != nil {
			return fmt.Errorf("plugins[%d]: ipam: %w", i, err)
		}
		n.ipam = append(n.ipam, conf.IPAM.Type)
	}
	return nil
}

// uses reports whether a plugin of the list, or its IPAM, is of a type.
func (n *network) uses(kind string) bool {
	isKind := func(p *libcni.PluginConfig) bool { return p.Network.Type == kind }
	return slices.Contains(n.ipam, kind) || slices.ContainsFunc(n.list.Plugins, isKind)
}

// filters reports whether the network needs iptables or nftables.
func (n *network) filters() bool {
	return n.uses("portmap") || n.uses("firewall") || n.masquerades()
}

// masquerades reports whether a plugin of the network masquerades addresses.
func (n *network) masquerades() bool {
	return slices.ContainsFunc(n.list.Plugins, func(p *libcni.PluginConfig) bool {
		var conf struct {
			IPMasq bool `json:"ipMasq"`
		}
		return json.Unmarshal(p.Bytes, &conf) == nil && conf.IPMasq
	})
}

// probe finds out whether the kernel has iptables or nftables where the network needs one.
func (n *network) probe(ctx context.Context) error {
	if !n.filters() {
		return nil
	}
	nft, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput()
	if err == nil {
		return nil
	}
	tables, err := exec.CommandContext(ctx, "iptables", "-w", "5", "-t", "nat", "-S").CombinedOutput()
	if err == nil {
		return nil
	}
	return fmt.Errorf("neither nftables nor iptables work: nft: %s; iptables: %s",
		strings.TrimSpace(string(nft)), strings.TrimSpace(string(tables)))
}

// hasCheck reports whether a version of the specification has CHECK.
func hasCheck(v string) bool {
	ok, err := version.GreaterThanOrEqualTo(v, "0.4.0")
	return err == nil && ok
}
