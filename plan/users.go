package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// UserNamespace is the key "userNamespace": the user namespace of a pod, whose users and groups 0 to Size-1 are HostID,
// HostID+1 and so on outside. HostID 0 is none, and autoID one that the pod's name decides.
type UserNamespace struct{ HostID, Size uint32 }

// autoID is UserNamespace.HostID for the word "auto". It is no ID.
const autoID = spec.MaxID + 1

// The numbers that "auto" chooses from: blocks of IDs above those of people and services, and below 2^31, from where on
// some programs read negative numbers.
const (
	blockSize  = 1 << 16
	firstBlock = 16
	blocks     = 1<<15 - firstBlock
)

func hostID(raw json.RawMessage, to *uint32) error {
	if string(raw) == `"auto"` {
		*to = autoID
		return nil
	}
	if whole(raw, to, 1, spec.MaxID) != nil {
		return fmt.Errorf(`must be a whole number from 1 to %d, or "auto"`, uint32(spec.MaxID))
	}
	return nil
}

// of returns the namespace of the pod with that name.
func (n UserNamespace) of(pod string) (UserNamespace, error) {
	switch {
	case n.HostID == autoID && n.Size > blockSize:
		return n, fmt.Errorf("hostID \"auto\" has %d IDs, and size is %d", blockSize, n.Size)
	case n.HostID == autoID:
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(pod))
		n.HostID = (firstBlock + hash.Sum32()%blocks) * blockSize
	case n.HostID > spec.MaxID-n.Size+1:
		return n, fmt.Errorf("%d IDs from %d on end above %d", n.Size, n.HostID, uint32(spec.MaxID))
	}
	return n, nil
}

// separateUsers gives the pod's apps the user namespace of the configuration. A pod that needs the host's users does
// without, unless the configuration requires the namespace.
func (p *Pod) separateUsers(machine spec.Support) error {
	if p.Config.UserNamespace.HostID == 0 {
		return nil
	}
	own, err := p.Config.UserNamespace.of(p.Name)
	why := p.needsHostUsers()
	switch {
	case err != nil:
		return fmt.Errorf("stagerConfig.userNamespace: %w", err)
	case why != "" && slices.Contains(p.Config.RequiredNamespaces, "user"):
		return fmt.Errorf("%s, and stagerConfig.requiredNamespaces has user", why)
	case why != "":
		p.Warnings = append(p.Warnings, "the pod has the stager's user namespace: "+why)
		return nil
	case !machine.UserNamespaces:
		return errors.New("stagerConfig.userNamespace: this stager's runtime, or the kernel, has no user namespaces")
	case p.Config.Runtime == spec.LibcontainerStarts:
		return fmt.Errorf("stagerConfig.userNamespace: not with stagerConfig.runtime %q", p.Config.Runtime)
	}
	p.UserNamespace = &spec.UserNamespace{Path: names.UserNamespace, HostID: own.HostID, Size: own.Size}
	for i := range p.Apps {
		p.Apps[i].Spec.UserNamespace = p.UserNamespace
	}
	if !p.Namespaces.HostNet {
		p.Sysctl = withOpenNetwork(p.Sysctl)
	}
	return nil
}

// needsHostUsers returns what the pod asks for that its own user namespace would take away, "" for nothing.
func (p *Pod) needsHostUsers() string {
	if p.Namespaces.HostUser {
		return "os/linux/namespaces asks for the host's"
	}
	for _, app := range p.Apps {
		shared := func(m spec.Mount) bool { return m.Propagation == spec.BothWays }
		switch {
		case app.Spec.Privileged:
			return fmt.Sprintf("app %q has os/linux/privileged", app.Name)
		case slices.ContainsFunc(app.Spec.Mounts, shared):
			return fmt.Sprintf("app %q has a volume whose mounts are shared with the host", app.Name)
		}
	}
	return ""
}

// withOpenNetwork adds the sysctls by which apps bind every port and send echo requests (ping): they have no
// capabilities over the pod's network namespace, which the daemon has made. What the pod asks for comes first.
func withOpenNetwork(sysctl map[string]string) map[string]string {
	all := map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647",
	}
	maps.Copy(all, sysctl)
	return all
}
