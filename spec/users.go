package spec

// UserNamespace is a user namespace (user_namespaces(7)) in which a container's processes run. Its users and groups 0
// to Size-1 are HostID, HostID+1 and so on in the caller's user namespace.
//
// In a bind of Spec.Mounts, a file has the number that its file system has, from 0 to Size-1 (MOUNT_ATTR_IDMAP in
// mount_setattr(2)), but a device node keeps its owner, and so may a socket. In a file system that the runtime makes,
// files belong to user 0. Spec.Root is the caller's, who has mounted it so that its files belong to the namespace's
// users.
type UserNamespace struct {
	// Path is that of a file of the namespace, like /proc/PID/ns/user, in the caller's mount namespace.
	Path         string
	HostID, Size uint32
}

// Outside returns the caller's number of an ID in the namespace, the ID itself without one. It returns false for an ID
// that the namespace does not have.
func (n *UserNamespace) Outside(id uint32) (uint32, bool) {
	if n == nil {
		return id, true
	}
	return n.HostID + id, id < n.Size
}

// Inside returns the number in the namespace of the caller's ID, as Outside.
func (n *UserNamespace) Inside(id uint32) (uint32, bool) {
	if n == nil {
		return id, true
	}
	return id - n.HostID, id-n.HostID < n.Size // below HostID the difference is larger than any size
}
