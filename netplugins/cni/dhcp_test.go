package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/netplugins/plugin"
)

// A server that has lost its leases may give another address than the pod has: it goes back, as the pod does not use it.
func TestAnotherAddressFromDHCPGoesBack(t *testing.T) {
	newNetwork(t)
	dir := t.TempDir()
	calls, address := filepath.Join(dir, "calls"), filepath.Join(dir, "address")
	program := "#!/bin/sh\necho ${0##*/} $CNI_COMMAND >>" + calls + "\n" +
		`echo "{\"cniVersion\": \"1.0.0\", \"ips\": [{\"address\": \"$(cat ` + address + `)\"}]}"` + "\n"
	for path, text := range map[string]string{"main": program, "dhcp": program, "address": "10.0.0.9/24"} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o700); err != nil { //nolint:gosec // programs
			t.Fatal(err)
		}
	}
	c := &cni{path: []string{dir}, cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data")}
	config := []byte(`{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", "type": "main", "ipam": {"type": "dhcp"}}`)
	pod := plugin.Pod{Namespace: "/proc/self/ns/net", UUID: "pod", Interface: "eth0"}
	if _, err := c.Add(t.Context(), config, pod); err != nil {
		t.Fatal(err)
	}
	n, err := parse(config)
	if err != nil {
		t.Fatal(err)
	}
	lib := c.library()
	leases, err := c.leases(lib, n)
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	for given, want := range map[string]string{"10.0.0.9/16": "ADD", "10.0.0.7/24": "ADD DEL"} {
		if err := os.WriteFile(address, []byte(given), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(calls)
		leaseAgain(t.Context(), lib, leases)
		got, err := os.ReadFile(calls)
		have := strings.Join(strings.Fields(strings.ReplaceAll(string(got), "dhcp ", "")), " ")
		if err != nil || have != want {
			t.Errorf("%s: calls %q, %v, want %q", given, have, err, want)
		}
	}
}
