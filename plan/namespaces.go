package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// namespaceNames returns the namespaces that the isolator os/linux/namespaces and the
// configuration accept.
func namespaceNames() []string { return []string{"ipc", "net", "pid", "user", "uts"} }

// Namespaces says which namespaces the pod shares with the stager, because the pod or the
// administrator asks for it. The zero value shares none.
type Namespaces struct {
	HostIPC, HostNet, HostPID, HostUTS bool

	// HostUser says that the pod gives up the user namespace that the configuration has for it.
	HostUser bool
}

// hostNamespaces returns the namespaces of the host that the isolator asks for. value is the isolator's, such as
// {"pid": "host"}, or nil for none. A namespace that is "" or absent is not asked for.
func hostNamespaces(c Config, value json.RawMessage) (Namespaces, error) {
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
	host := func(name string) bool { return asked[name] == "host" }
	return Namespaces{
		HostIPC: host("ipc"), HostNet: host("net"), HostPID: host("pid"), HostUTS: host("uts"),
		HostUser: host("user") && c.UserNamespace.HostID != 0,
	}, nil
}

// or returns n and the namespaces that the configuration leaves to the host.
func (n Namespaces) or(c Config) Namespaces {
	host := func(name string) bool {
		return !slices.Contains(c.RequiredNamespaces, name) && !slices.Contains(c.DefaultNamespaces, name)
	}
	return Namespaces{
		HostIPC: n.HostIPC || host("ipc"), HostNet: n.HostNet || host("net"),
		HostPID: n.HostPID || host("pid"), HostUTS: n.HostUTS || host("uts"), HostUser: n.HostUser,
	}
}

// CloneFlags returns the clone(2) flags for the pod's init, in the pod's namespaces. The
// network namespace is the stager's, which the daemon made.
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
