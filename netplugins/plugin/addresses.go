package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// Addresses are given to pods until the machine is restarted, by any number of processes at once: a
// symbolic link in the folder, called as the address, names the pod. symlink(2) fails if another
// process has made it.
type Addresses struct {
	Dir string // RunDir, but for tests
}

// Reserve takes the first free address of a subnet for a pod. The subnet's first address, that of the subnet
// itself, and the second, which is the gateway's, are not given away, and neither is the last.
func (a Addresses) Reserve(subnet netip.Prefix, uuid string) (ip, gateway netip.Addr, err error) {
	gateway = subnet.Masked().Addr().Next()
	if err := os.MkdirAll(a.Dir, 0o755); err != nil {
		return ip, gateway, fmt.Errorf("reserve address: %w", err)
	}
	for ip = gateway.Next(); subnet.Contains(ip.Next()); ip = ip.Next() {
		err := os.Symlink(uuid, filepath.Join(a.Dir, ip.String()))
		if err == nil {
			return ip, gateway, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return ip, gateway, fmt.Errorf("reserve address: %w", err)
		}
	}
	return ip, gateway, fmt.Errorf("no address of %s is free", subnet)
}

// Release frees the addresses of a pod.
func (a Addresses) Release(uuid string) error {
	entries, err := os.ReadDir(a.Dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("release addresses: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(a.Dir, e.Name())
		if owner, err := os.Readlink(path); err != nil || owner != uuid {
			continue
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("release addresses: %w", err)
		}
	}
	return nil
}
