package main

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// sparingLoopback returns the list for a pod with this runtimeConfig, in which portmap leaves the ports of [::1]
// alone: it would send packets from ::1 to a pod, and Linux routes no packet from ::1 to another
// interface. A connection to [::1] would hang. It is refused instead, so a client of "localhost" connects to 127.0.0.1.
// A configuration with conditions of its own stays as it is.
func sparingLoopback(list *libcni.NetworkConfigList, runtimeConfig map[string]any) (*libcni.NetworkConfigList, error) {
	if runtimeConfig["portMappings"] == nil {
		return list, nil
	}
	sparing := *list
	sparing.Plugins = slices.Clone(list.Plugins)
	for i, p := range list.Plugins {
		if p.Network.Type != "portmap" {
			continue
		}
		var own struct {
			Backend      string    `json:"backend"`
			ConditionsV4 *[]string `json:"conditionsV4"`
			ConditionsV6 *[]string `json:"conditionsV6"`
		}
		if err := json.Unmarshal(p.Bytes, &own); err != nil {
			return nil, fmt.Errorf("plugins[%d]: %w", i, err)
		}
		if own.ConditionsV4 != nil || own.ConditionsV6 != nil {
			continue
		}
		var err error
		if sparing.Plugins[i], err = libcni.InjectConf(p, loopbackConditions(own.Backend)); err != nil {
			return nil, fmt.Errorf("plugins[%d]: %w", i, err)
		}
	}
	return &sparing, nil
}

// loopbackConditions are the keys of portmap's configuration that spare [::1]. They are in the language of the backend,
// so they name it: with "" it is the one that portmap would choose.
func loopbackConditions(backend string) map[string]any {
	if backend == "" {
		backend = chooseBackend()
	}
	conditions := []string{"!", "-d", "::1"}
	if backend == nftablesBackend {
		conditions = []string{"ip6", "daddr", "!=", "::1"}
	}
	return map[string]any{"backend": backend, "conditionsV6": conditions}
}
