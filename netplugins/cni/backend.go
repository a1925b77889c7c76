package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/plugins/pkg/utils"
)

// In each ADD, bridge and ptp with ipMasq, and portmap, execute iptables twice only to choose between iptables
// and nftables, unless their configuration names one. So setup chooses once, and writes its choice
// to a file; add and del put the choice into the plugins' configurations.

// Backends, as the CNI plugins name them.
const (
	iptablesBackend = "iptables"
	nftablesBackend = "nftables"
)

// chooseBackend returns the backend that the CNI plugins choose if their configuration names none.
func chooseBackend() string {
	if !utils.SupportsIPTables() && utils.SupportsNFTables() {
		return nftablesBackend
	}
	return iptablesBackend
}

// decide chooses the backend of a network that needs one, for setup's own calls of plugins and for those of add and
// del. While pods are connected it stays the same: their DEL removes only the rules of the backend that it is given.
func (c *cni) decide(lib *libcni.CNIConfig, n *network) error {
	if !slices.ContainsFunc(n.list.Plugins, func(p *libcni.PluginConfig) bool { return backendKey(p) != "" }) {
		return nil
	}
	connected, err := attachments(lib, n)
	if err != nil {
		return err
	}
	backend := c.remembered()
	if backend == "" || len(connected) == 0 {
		backend = chooseBackend()
		if err := c.remember(backend); err != nil {
			return fmt.Errorf("remember backend: %w", err)
		}
	}
	return n.setBackend(backend)
}

// remember writes the file in one step: an add may read it at any time. Several setups may run at once, in one PID
// namespace.
func (c *cni) remember(backend string) error {
	next := fmt.Sprintf("%s-%d", c.backend, os.Getpid())
	if err := os.WriteFile(next, []byte(backend), 0o600); err != nil {
		return err
	}
	return os.Rename(next, c.backend)
}

// remembered returns the backend that setup has chosen, or "" if the file is missing or has anything else: a
// daemon of 2016 may call add before setup has ended. The plugins then choose themselves.
func (c *cni) remembered() string {
	data, err := os.ReadFile(c.backend)
	if backend := string(data); err == nil && (backend == iptablesBackend || backend == nftablesBackend) {
		return backend
	}
	return ""
}

// setBackend puts a backend into the configurations of the plugins that would choose one. The configuration of any
// other plugin stays as it is, and with "" all do.
func (n *network) setBackend(backend string) error {
	if backend == "" {
		return nil
	}
	for i, p := range n.list.Plugins {
		key := backendKey(p)
		if key == "" {
			continue
		}
		var err error
		if n.list.Plugins[i], err = libcni.InjectConf(p, map[string]any{key: backend}); err != nil {
			return fmt.Errorf("plugins[%d]: %w", i, err)
		}
	}
	return nil
}

// backendKey returns the key by which a plugin takes the backend, or "" if the plugin would not choose one. As
// in the plugins, null is no choice; any other value, also a wrong one, is the plugin's to judge.
func backendKey(p *libcni.PluginConfig) string {
	var own struct {
		IPMasq        any `json:"ipMasq"`
		IPMasqBackend any `json:"ipMasqBackend"`
		Backend       any `json:"backend"`
	}
	if err := json.Unmarshal(p.Bytes, &own); err != nil {
		return ""
	}
	switch p.Network.Type {
	case "bridge", "ptp":
		if own.IPMasq == true && own.IPMasqBackend == nil {
			return "ipMasqBackend"
		}
	case "portmap":
		if own.Backend == nil {
			return "backend"
		}
	}
	return ""
}
