package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// record is what is known of a pod's connection, in a file of libcni's cache and in its form: libcni lists the
// connected pods by these files, and finds the result for CHECK in them. libcni itself would write the file after the
// last ADD of a list alone, and not in one step. This plugin writes it before the first ADD and after each, so that a
// DEL of a pod whose ADD failed or was killed has the result of the plugins that had worked.
type record struct {
	Kind           string          `json:"kind"`
	ContainerID    string          `json:"containerId"`
	Config         []byte          `json:"config"`
	Interface      string          `json:"ifName"`
	Network        string          `json:"networkName"`
	Namespace      string          `json:"netns,omitempty"`
	Args           [][2]string     `json:"cniArgs,omitempty"`
	CapabilityArgs map[string]any  `json:"capabilityArgs,omitempty"`
	Result         json.RawMessage `json:"result,omitempty"` // of the last plugin that has worked

	// Connecting says that the ADD of the list has not ended well. libcni does not know this key.
	Connecting bool `json:"connecting,omitempty"`
}

// newRecord is of a pod that no plugin of the network has connected yet.
func newRecord(n *network, rt *libcni.RuntimeConf) record {
	return record{
		Kind: libcni.CNICacheV1, ContainerID: rt.ContainerID, Config: n.list.Bytes, Interface: rt.IfName,
		Network: n.list.Name, Namespace: rt.NetNS, Args: rt.Args, CapabilityArgs: rt.CapabilityArgs, Connecting: true,
	}
}

// recordFile is the file of a pod's record, where libcni has it.
func (c *cni) recordFile(n *network, rt *libcni.RuntimeConf) string {
	return filepath.Join(c.cache, "results", recordName(n, rt))
}

func recordName(n *network, rt *libcni.RuntimeConf) string {
	return fmt.Sprintf("%s-%s-%s", n.list.Name, rt.ContainerID, rt.IfName)
}

// nextFile is where the next version of a record is written. It is not in the folder of the records: libcni takes each
// file there for one.
func (c *cni) nextFile(n *network, rt *libcni.RuntimeConf) string {
	return filepath.Join(c.cache, nextDir, recordName(n, rt))
}

// nextDir is the folder, in libcni's, of the records that are being written.
const nextDir = "next"

// write writes a pod's record in one step.
func (c *cni) write(n *network, rt *libcni.RuntimeConf, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write record of pod: %w", err)
	}
	file, next := c.recordFile(n, rt), c.nextFile(n, rt)
	err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.MkdirAll(filepath.Dir(next), 0o700))
	if err == nil {
		err = os.WriteFile(next, text, 0o600)
	}
	if err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return fmt.Errorf("write record of pod: %w", err)
	}
	return nil
}

// read reads a pod's record, which has no result if the pod is not connected, or a power loss has damaged the file.
func (c *cni) read(n *network, rt *libcni.RuntimeConf) (record, error) {
	text, err := os.ReadFile(c.recordFile(n, rt))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err != nil {
		return record{}, fmt.Errorf("read record of pod: %w", err)
	}
	var r record
	if json.Unmarshal(text, &r) != nil {
		return record{}, nil
	}
	return r, nil
}

// notOthers returns the addresses that no other pod has: a DEL that is repeated may have freed one before.
func (c *cni) notOthers(rt *libcni.RuntimeConf, addresses []netip.Addr) ([]netip.Addr, error) {
	files, err := filepath.Glob(filepath.Join(c.cache, "results", "*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		var r record
		switch {
		case errors.Is(err, fs.ErrNotExist): // forgotten meanwhile
		case err != nil:
			return nil, fmt.Errorf("read records of pods: %w", err)
		case json.Unmarshal(text, &r) == nil && r.ContainerID != rt.ContainerID:
			others := podAddresses(r.Result)
			addresses = slices.DeleteFunc(addresses, func(a netip.Addr) bool { return slices.Contains(others, a) })
		}
	}
	return addresses, nil
}

// forget removes a pod's record, if there is one.
func (c *cni) forget(n *network, rt *libcni.RuntimeConf) error {
	for _, file := range []string{c.nextFile(n, rt), c.recordFile(n, rt)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove record of pod: %w", err)
		}
	}
	return nil
}
