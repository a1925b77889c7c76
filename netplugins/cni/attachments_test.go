package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	newNetwork(t)
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	program := `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}' && exit ;;
ADD) echo '{"cniVersion": "1.0.0"}' ;;
esac
[ "$CNI_ARGS" = "IgnoreUnknown=1;K=v" ] || [ $CNI_COMMAND = VERSION ] || CNI_COMMAND="$CNI_COMMAND with $CNI_ARGS"
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
	c.args = argsOf("IgnoreUnknown=1;K=v")
	if _, err := c.Add(t.Context(), config("second"), pod); err != nil {
		t.Fatal(err)
	}
	c.args = nil // of another call
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

// After an ADD that has failed, or was killed, each plugin's DEL has the result of the plugins that had worked, also if
// another plugin's DEL fails. The pod stays recorded until each has worked, and then no file of it is left.
func TestEachPluginsDELHasTheLastResult(t *testing.T) {
	newNetwork(t)
	dir := t.TempDir()
	const program = `cd ${0%/*}
kind=${0##*/}
[ $CNI_COMMAND != VERSION ] || { echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'; exit; }
echo $CNI_COMMAND $kind $(sed -n 's/.*"prevResult":.*"address":"\([^"]*\)".*/\1/p') >>calls
[ ! -e fail-$kind-$CNI_COMMAND ] || { echo '{"code": 100, "msg": "fails"}'; exit 1; }
[ $CNI_COMMAND != ADD ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.'$(wc -l <calls)'/24"}]}'
`
	for _, kind := range []string{"first", "second", "third"} {
		writeProgram(t, filepath.Join(dir, kind), program)
	}
	for _, file := range []string{"fail-third-ADD", "fail-second-DEL"} {
		writeProgram(t, filepath.Join(dir, file), "")
	}
	c := &cni{path: []string{dir}, cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data"), idle: true, pods: []string{}}
	config := []byte(`{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", "plugins": [{"type": "first"}, {"type": "second"}, {"type": "third"}]}`)
	pod := plugin.Pod{Namespace: "/proc/thread-self/ns/net", UUID: "pod", Interface: "eth0"}
	want := func(do string, err error, fails bool) {
		t.Helper()
		text, readErr := os.ReadFile(filepath.Join(dir, "calls"))
		got := strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), ", ")
		const dels = "DEL third 192.0.2.2/24, DEL second 192.0.2.2/24, DEL first 192.0.2.2/24"
		if readErr != nil || !strings.HasSuffix(got, dels) || strings.Contains(strings.TrimSuffix(got, dels), "DEL") || (err != nil) != fails {
			t.Errorf("%s: %v, calls %s", do, err, got)
		}
		if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(c.cache, "*", "*"))
		if err != nil || (len(files) > 0) != fails {
			t.Errorf("%s: files %q, %v", do, files, err)
		}
	}
	_, err := c.Add(t.Context(), config, pod)
	want("add", err, true)
	want("del", c.Del(t.Context(), config, pod), true)
	if err := os.Remove(filepath.Join(dir, "fail-second-DEL")); err != nil {
		t.Fatal(err)
	}
	want("setup", c.Setup(t.Context(), config), false)
}

// A plugin that hangs leaves the others their time for DEL.
func TestAPluginThatHangsLeavesTheOthersTheirTime(t *testing.T) {
	newNetwork(t)
	dir := t.TempDir()
	writeProgram(t, filepath.Join(dir, "first"), "touch $0-called")
	writeProgram(t, filepath.Join(dir, "second"), "exec sleep 1000")
	c := &cni{path: []string{dir}, cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data")}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	config := []byte(`{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "first"}, {"type": "second"}]}`)
	err := c.Del(ctx, config, plugin.Pod{Namespace: "/proc/thread-self/ns/net", UUID: "pod", Interface: "eth0"})
	if err == nil || !strings.Contains(err.Error(), "plugin second: not done within") {
		t.Errorf("error %v", err)
	}
	if !exists(filepath.Join(dir, "first-called")) {
		t.Error("the first plugin was not called")
	}
}
