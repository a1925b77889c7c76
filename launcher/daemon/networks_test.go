package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
)

// What an administrator takes from pods is not taken from the containers of network plugins, which have the host's powers.
func TestPluginsKeepTheirPowers(t *testing.T) {
	const config = `{"requiredNamespaces": ["user"], "userNamespace": {"hostID": 7}, "Forbid": ["privileged"], "restart": "always", "graphStorage": "copy"}`
	for given, want := range map[string]string{config: `{"graphStorage":"copy"}`, "": "", "{}": "{}"} {
		var raw json.RawMessage
		if given != "" {
			raw = json.RawMessage(given)
		}
		if got, err := pluginStagerConfig(raw); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", given, got, err, want)
		}
	}
	if _, err := pluginStagerConfig(json.RawMessage("[]")); err == nil {
		t.Error("a list is accepted")
	}
}

// The stager of a plugin's container is imported until ctx ends, and a missing one has the error of any pod.
func TestThePlannerOfPluginsFindsTheStager(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for ref, want := range map[string]error{"https://127.0.0.1:1/stager.aci": context.Canceled, "example.com/stager": ErrNoStager} {
		d, err := Open(Config{DefaultStagerImage: ref}, Options{State: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.pluginPlanner(ctx); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
}
