// Package networks is the daemon's side of the Kurma Network Specification: it reads the
// networks of the configuration, decides what a pod's attachments are, calls the networks'
// plugins, and keeps the pod's network namespace.
//
// A pod's way through the package:
//
//	Parse    the configuration's container_networks        []Network
//	Attach   what the pod asks for, and its UUID           []Attachment, stored in the pod's plan
//	Make     a network namespace, pinned in a file         *Namespace
//	Connect  `add` of each plugin, in order                Record, on disk before the first `add`
//	Disconnect  `del` in reverse, from plan and record     also after a crash
//	Remove   the namespace
//
// A plugin is the interface Plugin; package plugins beside this one runs it as a container.
package networks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"kurma.io/stager/internal/strictjson"
)

// Network is an entry of container_networks.
type Network struct {
	Name string
	ACI  string // where the plugin's image is: an image of the store, or a URL
	// Interface is the template of the interface's name, "" for a network without one.
	Interface string
	// Default says that pods get the network that name none.
	Default bool
	// Entry is the entry as the operator wrote it, byte for byte. It is the plugin's
	// configuration.
	Entry string
}

// IsName reports whether a network may have that name: it is the name of a folder, and stands
// before a colon on the command line.
func IsName(name string) bool {
	const longest = 63
	return len(name) <= longest && namePattern.MatchString(name) && name != HostName && name != NoneName
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// HostName and NoneName stand on the command line for the host's network and for loopback alone.
const (
	HostName = "host"
	NoneName = "none"
)

// Parse reads the entries of container_networks. An error names the entry and the key.
func Parse(entries []json.RawMessage) ([]Network, error) {
	var all []Network
	for i, raw := range entries {
		n, err := parseEntry(raw)
		if err != nil {
			return nil, fmt.Errorf("container_networks[%d]: %w", i, err)
		}
		if find(all, n.Name) != nil {
			return nil, fmt.Errorf("container_networks[%d]: name %q is given twice", i, n.Name)
		}
		all = append(all, n)
	}
	return all, nil
}

// ReadFolder adds the networks of a folder to those of the configuration, which replace networks of the same names. A
// file NAME.json has an entry of container_networks; the files are read in the order of their names. A folder that
// does not exist has none. An error names the file and the key.
func ReadFolder(dir string, all []Network) ([]Network, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	own := len(all)
	for _, entry := range files {
		if filepath.Ext(entry.Name()) != ".json" || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		file := filepath.Join(dir, entry.Name())
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read network: %w", err)
		}
		n, err := parseEntry(bytes.TrimSpace(text))
		if err == nil && find(all[own:], n.Name) != nil {
			err = fmt.Errorf("name %q is given twice", n.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if find(all[:own], n.Name) == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

func parseEntry(raw json.RawMessage) (Network, error) {
	if !strings.HasPrefix(strings.TrimSpace(string(raw)), "{") {
		return Network{}, errors.New("must be an object")
	}
	var object strictjson.Object
	if err := json.Unmarshal(raw, &object); err != nil {
		return Network{}, err
	}
	// All other keys are the plugin's. A plugin may tell "Name" from "name".
	n := Network{Entry: string(raw)}
	for key, into := range map[string]any{
		"name": &n.Name, "aci": &n.ACI, "containerInterface": &n.Interface, "default": &n.Default,
	} {
		if value, ok := object[key]; ok {
			if err := json.Unmarshal(value, into); err != nil {
				return Network{}, fmt.Errorf("%s: %s: %w", key, strictjson.Show(value), err)
			}
		}
	}
	return n, n.check(object)
}

// check returns an error that names the key with an invalid value. object is the whole entry.
func (n Network) check(object strictjson.Object) error {
	switch {
	case n.Name == "":
		return errors.New("name: missing")
	case !IsName(n.Name):
		return fmt.Errorf("name: %q: want at most 63 letters, digits, '.', '_' and '-', the first a letter or "+
			"digit, and not %q or %q", n.Name, HostName, NoneName)
	case n.ACI == "":
		return fmt.Errorf("aci: missing in network %q", n.Name)
	case object["runtimeConfig"] != nil:
		return fmt.Errorf("runtimeConfig: network %q: the launcher sets this key", n.Name)
	}
	if err := checkTemplate(n.Interface); err != nil {
		return fmt.Errorf("containerInterface: network %q: %w", n.Name, err)
	}
	return nil
}

// find returns the network of that name, or nil.
func find(all []Network, name string) *Network {
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// Find returns the network of that name.
func Find(all []Network, name string) (Network, error) {
	if n := find(all, name); n != nil {
		return *n, nil
	}
	names := make([]string, len(all))
	for i, n := range all {
		names[i] = n.Name
	}
	if len(names) == 0 {
		return Network{}, fmt.Errorf("no network %q: the configuration has no container_networks", name)
	}
	return Network{}, fmt.Errorf("no network %q; known networks: %s", name, strings.Join(names, ", "))
}

// Publishes reports whether the network publishes the ports of its pods.
func (n Network) Publishes() bool {
	on, err := n.capabilities()
	return err == nil && on["portMappings"]
}

// capabilities returns what the entry, or a plugin in its list, turns on.
func (n Network) capabilities() (map[string]bool, error) {
	type conf struct {
		Capabilities map[string]bool `json:"capabilities"`
	}
	var c struct {
		conf
		Plugins []conf `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(n.Entry), &c); err != nil {
		return nil, fmt.Errorf("read capabilities of network %q: %w", n.Name, err)
	}
	on := make(map[string]bool)
	for _, one := range append(c.Plugins, c.conf) {
		for name, is := range one.Capabilities {
			on[name] = on[name] || is
		}
	}
	return on, nil
}
