package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// host-local makes an address' file and then writes the pod into it; killed between both, it leaves an empty file.
func TestAddressesWithoutAnOwnerAreFree(t *testing.T) {
	c := &cni{data: t.TempDir()}
	if err := c.freeOwnerless("net"); err != nil {
		t.Errorf("of a network without addresses: %v", err)
	}
	dir := filepath.Join(c.data, "networks", "net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"10.88.0.9": "", "fd00::9": "", "10.88.0.8": "pod\r\neth0", "lock": "", "last_reserved_ip.0": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.freeOwnerless("net"); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, file := range files {
		left = append(left, file.Name())
	}
	if !slices.Equal(left, []string{"10.88.0.8", "last_reserved_ip.0", "lock"}) {
		t.Errorf("left: %q", left)
	}
}
