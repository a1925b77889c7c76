package daemon

import (
	"encoding/json"
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
