package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// libcni passes runtimeConfig to the plugins of a list that have the capability themselves, so capabilities beside the
// list would turn on what no plugin gets.
func TestCapabilitiesBelongToPlugins(t *testing.T) {
	dir := t.TempDir()
	const version = "#!/bin/sh\necho '{\"cniVersion\": \"1.0.0\", \"supportedVersions\": [\"1.0.0\"]}'\n"
	if err := os.WriteFile(filepath.Join(dir, "any"), []byte(version), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	c := &cni{path: []string{dir}, cache: filepath.Join(dir, "cache"), data: filepath.Join(dir, "data")}
	for keys, refused := range map[string]bool{
		`"plugins": [{"type": "any"}], "capabilities": {"mac": true}`: true,
		`"plugins": [{"type": "any", "capabilities": {"mac": true}}]`: false,
		`"type": "any", "capabilities": {"mac": true}`:                false,
	} {
		config := []byte(`{"name": "n", "cniVersion": "1.0.0", "containerInterface": "eth0", ` + keys + `}`)
		err := c.Setup(t.Context(), config)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "want them in an element of plugins") {
			t.Errorf("%s: error %v", keys, err)
		}
		if n, err := parse(config); err != nil { // del of a pod that is connected all the same
			t.Errorf("%s: %v", keys, err)
		} else if !refused && !n.list.Plugins[0].Network.Capabilities["mac"] {
			t.Errorf("%s: the plugin has no capability", keys)
		}
	}
}
