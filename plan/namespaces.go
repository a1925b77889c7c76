package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// namespaceNames are the namespaces that the isolator os/linux/namespaces and
// the configuration know. A stager has no user namespace to give, so "user" is
// always the host's.
func namespaceNames() []string { return []string{"ipc", "net", "pid", "user", "uts"} }

// Namespaces says which namespaces the pod shares with the stager, by the
// wish of the pod or of the administrator. The zero value shares none.
type Namespaces struct {
	HostIPC, HostNet, HostPID, HostUTS bool
}

// decideNamespaces settles the pod's namespaces by the isolator's value, nil
// for none: {"pid": "host"} and so on, "" or absent for the configured default.
func decideNamespaces(c Config, value json.RawMessage) (Namespaces, error) {
	var asked map[string]string
	if value != nil && json.Unmarshal(value, &asked) != nil {
		return Namespaces{}, fmt.Errorf(`must be an object such as {"net": "host"}`)
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		switch {
		case !slices.Contains(namespaceNames(), name):
			return Namespaces{}, fmt.Errorf("unknown namespace %q", name)
		case asked[name] != "" && asked[name] != "host":
			return Namespaces{}, fmt.Errorf(`%s must be "host", is %q`, name, asked[name])
		case asked[name] == "host" && slices.Contains(c.RequiredNamespaces, name):
			return Namespaces{}, fmt.Errorf("%s must not be the host's: stagerConfig.requiredNamespaces forbids it", name)
		}
	}
	host := func(name string) bool {
		if asked[name] == "host" {
			return true
		}
		return !slices.Contains(c.RequiredNamespaces, name) && !slices.Contains(c.DefaultNamespaces, name)
	}
	return Namespaces{HostIPC: host("ipc"), HostNet: host("net"), HostPID: host("pid"), HostUTS: host("uts")}, nil
}

// CloneFlags are those of clone(2) for a supervisor in the pod's namespaces.
// Its network namespace is the stager's, made by the daemon; for its mount
// namespace see waiter.c.
func (n Namespaces) CloneFlags() uintptr {
	var flags uintptr
	if !n.HostPID {
		flags |= unix.CLONE_NEWPID
	}
	if !n.HostIPC {
		flags |= unix.CLONE_NEWIPC
	}
	if !n.HostUTS {
		flags |= unix.CLONE_NEWUTS
	}
	return flags
}
