package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// UserNamespace is the key "userNamespace": the user namespace of a pod, whose users and groups 0 to Size-1 are HostID,
// HostID+1 and so on outside. HostID 0 is none.
type UserNamespace struct{ HostID, Size uint32 }

func hostID(raw json.RawMessage, to *uint32) error {
	var v uint32
	if json.Unmarshal(raw, &v) != nil || v < 1 || v > spec.MaxID {
		return fmt.Errorf("must be a whole number from 1 to %d", uint32(spec.MaxID))
	}
	*to = v
	return nil
}

// separateUsers gives the pod's apps the user namespace of the configuration. A pod that needs the host's users does
// without, unless the configuration requires the namespace.
func (p *Pod) separateUsers(machine spec.Support) error {
	c := p.Config.UserNamespace
	if c.HostID == 0 {
		return nil
	}
	why := p.needsHostUsers()
	switch {
	case c.HostID > spec.MaxID-c.Size+1:
		return fmt.Errorf("stagerConfig.userNamespace: %d IDs from %d on end above %d", c.Size, c.HostID, uint32(spec.MaxID))
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
	p.UserNamespace = &spec.UserNamespace{Path: names.UserNamespace, HostID: c.HostID, Size: c.Size}
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
