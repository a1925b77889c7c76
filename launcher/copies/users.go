package copies

import "fmt"

// Users are the users of a tree, and likewise its groups: 0 to Size-1 are HostID, HostID+1 and so on for the caller.
// The zero value is the caller's own.
type Users struct{ HostID, Size uint32 }

// inside returns the tree's number of the caller's. One that the tree does not have stays as the kernel shows it.
func (u Users) inside(id uint32) int {
	if u.HostID != 0 && id-u.HostID < u.Size { // below HostID the difference is larger than any size
		return int(id - u.HostID)
	}
	return int(id)
}

// outside returns the caller's number of the tree's.
func (u Users) outside(id int) (int, error) {
	if u.HostID == 0 {
		return id, nil
	}
	if id < 0 || id >= int(u.Size) {
		return 0, fmt.Errorf("its owner %d is none of the %d users and groups there", id, u.Size)
	}
	return id + int(u.HostID), nil
}
