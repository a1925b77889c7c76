package translate

import (
	"errors"
	"fmt"
	"math"

	"kurma.io/stager/cri/records"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UsersOf returns the user namespace that a sandbox or container asks for (hostUsers: false); nil is the host's.
func UsersOf(o *runtimeapi.NamespaceOption) (*records.Users, error) {
	options := o.GetUsernsOptions()
	if options == nil || options.GetMode() == runtimeapi.NamespaceMode_NODE {
		if len(options.GetUids())+len(options.GetGids()) > 0 {
			return nil, errors.New("user namespace: mappings for that of the node")
		}
		return nil, nil
	}
	if options.GetMode() != runtimeapi.NamespaceMode_POD {
		return nil, fmt.Errorf("user namespace: mode %s, want POD or NODE", options.GetMode())
	}
	users, err := mappingOf(options.GetUids())
	if err != nil {
		return nil, fmt.Errorf("user namespace: users: %w", err)
	}
	groups, err := mappingOf(options.GetGids())
	if err != nil {
		return nil, fmt.Errorf("user namespace: groups: %w", err)
	}
	if *users != *groups {
		return nil, errors.New("user namespace: users and groups have different mappings")
	}
	return users, nil
}

func mappingOf(all []*runtimeapi.IDMapping) (*records.Users, error) {
	if len(all) != 1 {
		return nil, fmt.Errorf("%d mappings, want one", len(all))
	}
	m := all[0]
	last := uint64(m.GetHostId()) + uint64(m.GetLength())
	if m.GetContainerId() != 0 || m.GetHostId() == 0 || m.GetLength() == 0 || last > math.MaxUint32 {
		return nil, fmt.Errorf(
			"mapping of %d IDs from %d on to the host's from %d on: want IDs from 0 on, and the host's from 1 to %d",
			m.GetLength(), m.GetContainerId(), m.GetHostId(), uint32(math.MaxUint32-1))
	}
	return &records.Users{HostID: m.GetHostId(), Size: m.GetLength()}, nil
}

// UsernsOptions is what a status says of a sandbox's user namespace.
func UsernsOptions(users *records.Users) *runtimeapi.UserNamespace {
	if users == nil {
		return nil
	}
	mapping := []*runtimeapi.IDMapping{{HostId: users.HostID, Length: users.Size}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}
}

// checkUsers refuses a container with other users than its sandbox's, or with settings that are impossible in the
// sandbox's user namespace.
func checkUsers(c *runtimeapi.ContainerConfig, sandbox *records.Users) error {
	s := c.GetLinux().GetSecurityContext()
	if s.GetNamespaceOptions().GetUsernsOptions() != nil {
		asked, err := UsersOf(s.GetNamespaceOptions())
		switch {
		case err != nil:
			return err
		case (asked == nil) != (sandbox == nil) || asked != nil && *asked != *sandbox:
			return errors.New("user namespace: not that of the sandbox")
		}
	}
	if sandbox != nil && s.GetPrivileged() {
		return refuse("privileged container in a pod with its own user namespace (hostUsers: false)")
	}
	return nil
}

// checkMapping refuses a mount whose owners the stager would map in another way.
func checkMapping(m *runtimeapi.Mount, users *records.Users) error {
	if users != nil && m.GetImage() != nil {
		return refuse("image at %s in a pod with its own user namespace (hostUsers: false)", m.GetContainerPath())
	}
	for _, mappings := range [][]*runtimeapi.IDMapping{m.GetUidMappings(), m.GetGidMappings()} {
		if len(mappings) == 0 {
			continue
		}
		mapping, err := mappingOf(mappings)
		if err != nil {
			return fmt.Errorf("mount at %s: %w", m.GetContainerPath(), err)
		}
		if users == nil || *mapping != *users {
			return refuse("mount at %s with another mapping than the pod's user namespace", m.GetContainerPath())
		}
	}
	return nil
}
