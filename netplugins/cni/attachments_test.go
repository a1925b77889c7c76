package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kurma.io/stager/netplugins/plugin"
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

// A pod is checked and disconnected by the plugins that have connected it, although the network's list has changed.
func TestThePluginsThatConnectedAPodDisconnectIt(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	program := `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' && exit ;;
ADD) echo '{"cniVersion": "1.0.0"}' ;;
esac
grep -q '"args":{"a":"b"}' && echo "$CNI_COMMAND ${0##*/}" >>` + calls + "\n"
	for _, name := range []string{"first", "second", "third"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(program), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	c := &cni{
		path: []string{dir}, cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data"),
		check: true, idle: true, pods: []string{"pod"},
	}
	config := func(second string) []byte {
		return []byte(`{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", "args": {"a": "b"},
			"plugins": [{"type": "first"}, {"type": "` + second + `"}]}`)
	}
	pod := plugin.Pod{Namespace: "/proc/self/ns/net", UUID: "pod", Interface: "eth0"}
	if _, err := c.Add(t.Context(), config("second"), pod); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Setup(t.Context(), config("third")); err != nil {
			t.Fatal(err)
		}
		c.pods = []string{} // the pod is gone
	}
	got, err := os.ReadFile(calls)
	want := "ADD first, ADD second, CHECK first, CHECK second, DEL second, DEL first"
	if have := strings.Join(strings.Split(strings.TrimSpace(string(got)), "\n"), ", "); err != nil || have != want {
		t.Errorf("calls %s, %v, want %s", have, err, want)
	}
}
