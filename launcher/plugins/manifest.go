package plugins

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"kurma.io/stager/internal/strictjson"
	"kurma.io/stager/launcher/images"
)

// Paths in a plugin's container.
const (
	callDir   = "/opt/network" // has setup, add and del (Kurma Network Specification)
	statePath = "/var/lib/network"
	runPath   = "/run/network"
	holdPath  = callDir + "/.hold"

	// removePath is an executable that a plugin may have: it undoes `setup` when the network has left
	// the configuration.
	removePath = callDir + "/remove"
)

// hostVariable is the variable that has the path of the host's root folder, for plugins that need files of
// the host. It leads through the launcher that calls the plugin, and is valid during the call: unlike a
// mount it shows what appears later, wherever it is, and keeps no file system of the host busy.
const hostVariable = "NETWORK_HOST"

// app is the name of the container's only app.
const app = "plugin"

// manifest writes the pod manifest of a network's container. The app is the image's, as root,
// with another main process: one that only waits, because `setup` ends when it is done. The network's folders exist.
func (c *Containers) manifest(network string, image *images.Image) ([]byte, error) {
	section, err := section(image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image.Manifest.Name, err)
	}
	volumes, err := c.volumes(network)
	if err != nil {
		return nil, err
	}
	mount := func(name, path string) object { return object{"volume": name, "path": path} }
	return json.Marshal(object{
		"acKind":    "PodManifest",
		"acVersion": "0.8.11",
		"apps": []any{object{
			"name":   app,
			"image":  object{"id": image.ID},
			"app":    section,
			"mounts": []any{mount("network-state", statePath), mount("network-run", runPath), mount("network-hold", holdPath)},
		}},
		"volumes": volumes,
		"isolators": []any{object{
			"name":  "os/linux/namespaces",
			"value": object{"ipc": "host", "net": "host", "pid": "host", "uts": "host"},
		}},
	})
}

type object = map[string]any

// volumes returns the volumes of a network's container. A volume's source must not pass through a symbolic link, as
// the path of the networks' folder may.
func (c *Containers) volumes(network string) ([]any, error) {
	dir, err := filepath.EvalSymlinks(c.dir(network))
	if err != nil {
		return nil, err
	}
	volume := func(name, source string, readOnly bool) object {
		return object{"name": name, "kind": "host", "source": source, "readOnly": readOnly}
	}
	return []any{
		volume("network-state", filepath.Join(dir, stateDir), false),
		volume("network-run", filepath.Join(dir, runDir), false),
		volume("network-hold", c.Hold, true),
	}, nil
}

func section(image *images.Image) (strictjson.Object, error) {
	var document struct {
		App strictjson.Object `json:"app"`
	}
	if err := json.Unmarshal(image.Manifest.Raw, &document); err != nil {
		return nil, err
	}
	s := document.App
	if s == nil {
		return nil, errors.New("no app")
	}
	err := errors.Join(s.Set("exec", []string{holdPath, "hold"}), s.Set("user", "0"), s.Set("group", "0"))
	return s, err
}
