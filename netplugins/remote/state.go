package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// state is what the plugin keeps on disk, in /var/lib/network, between its calls. Each change is on disk
// before the driver is told, so that a call that was killed can be undone. The files are of a boot of the
// machine: links and sandboxes of an earlier boot are no more, but a driver may remember its networks.
//
//	lock               whose bytes are locks: the first is the networks', the others are endpoints'
//	current            ID of the network of the present configuration
//	nodes.json         nodes that the driver has been told of
//	networks/ID.json   a networkRecord
//	endpoints/ID.json  an endpoint: a pod that is connected
type state struct {
	dir  string
	boot string // the machine's boot ID
}

// networkRecord is a network that the driver has, or may have.
type networkRecord struct {
	ID      string                `json:"id"`
	Driver  string                `json:"driver"`
	Boot    string                `json:"boot"`
	Created bool                  `json:"created"` // false while CreateNetwork is under way
	Last    map[string]netip.Addr `json:"last"`    // the last address of each pool that was given to a pod
}

// endpoint is a pod's connection, and how far it has come.
type endpoint struct {
	ID        string         `json:"id"`
	Network   string         `json:"network"` // ID
	Driver    string         `json:"driver"`
	Boot      string         `json:"boot"`
	Addresses []netip.Prefix `json:"addresses"` // that the driver was given

	// Pending is the driver's method that is under way, which the driver may or may not have carried out.
	Pending string `json:"pending,omitempty"`

	// What must be undone.
	Created  bool       `json:"created"`
	Joined   bool       `json:"joined"`
	Link     *movedLink `json:"link"` // nil unless it may be in the pod
	External bool       `json:"external"`
}

// movedLink names a link on the host and in the pod.
type movedLink struct {
	Source string `json:"source"`
	Name   string `json:"name"`
}

func (s state) networkFile(id string) string { return filepath.Join(s.dir, "networks", id+".json") }

func (s state) endpointFile(id string) string { return filepath.Join(s.dir, "endpoints", id+".json") }
func (s state) nodesFile() string             { return filepath.Join(s.dir, "nodes.json") }
func (s state) currentFile() string           { return filepath.Join(s.dir, "current") }

// makeFolders makes the folders of the state.
func (s state) makeFolders() error {
	return errors.Join(
		os.MkdirAll(filepath.Join(s.dir, "networks"), 0o700),
		os.MkdirAll(filepath.Join(s.dir, "endpoints"), 0o700),
	)
}

// lockNetworks takes the lock under which networks are made and deleted, and addresses are chosen.
func (s state) lockNetworks(ctx context.Context) (unlock func(), err error) {
	return s.lock(ctx, 0)
}

// lockEndpoint takes the lock of an endpoint. A call may still be under way when the daemon that was killed
// in it is followed by another. A caller takes it before the lock of the networks.
func (s state) lockEndpoint(ctx context.Context, id string) (unlock func(), err error) {
	number, err := strconv.ParseInt(id[:15], 16, 64)
	if err != nil {
		return nil, err
	}
	return s.lock(ctx, 1+number)
}

// lock takes the lock of a byte of the file.
func (s state) lock(ctx context.Context, number int64) (unlock func(), err error) {
	if err := s.makeFolders(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		for {
			err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK, Start: number, Len: 1})
			if !errors.Is(err, unix.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", s.dir, err), file.Close())
		}
		return func() { _ = file.Close() }, nil
	case <-ctx.Done():
		go func() { _ = errors.Join(<-locked, file.Close()) }() // the caller has gone
		return nil, fmt.Errorf("wait for another call of this network: %w", context.Cause(ctx))
	}
}

// save writes a file in one step.
func save(file string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// load reads a file. A file that a power loss has damaged is as good as none: the driver's links are
// gone as well.
func load[T any](file string) (value T, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(data, &value); err != nil {
		return value, fmt.Errorf("%s: %w: %w", file, fs.ErrNotExist, err)
	}
	return value, nil
}

// drop removes a file, if it exists, and the leftovers of a killed save.
func drop(file string) error {
	var errs []error
	for _, path := range []string{file, file + ".new"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// all reads the records of a folder.
func all[T any](dir string) ([]T, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var values []T
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		value, err := load[T](filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

func (s state) networks() ([]networkRecord, error) {
	return all[networkRecord](filepath.Join(s.dir, "networks"))
}

// everyEndpoint returns the endpoints of all networks.
func (s state) everyEndpoint() ([]endpoint, error) {
	return all[endpoint](filepath.Join(s.dir, "endpoints"))
}

// endpoints returns the endpoints of a network.
func (s state) endpoints(network string) ([]endpoint, error) {
	every, err := s.everyEndpoint()
	var some []endpoint
	for _, e := range every {
		if e.Network == network {
			some = append(some, e)
		}
	}
	return some, err
}

// addresses returns the addresses of the pods that are connected, also to the networks of earlier
// configurations, which may have the same subnets.
func (s state) addresses() (map[netip.Addr]bool, error) {
	every, err := s.everyEndpoint()
	used := make(map[netip.Addr]bool)
	for _, e := range every {
		if e.Boot != s.boot {
			continue
		}
		for _, address := range e.Addresses {
			used[address.Addr()] = true
		}
	}
	return used, err
}

// isCreated reports whether the driver has the network.
func (s state) isCreated(id string) bool {
	n, err := load[networkRecord](s.networkFile(id))
	return err == nil && n.Created && n.Boot == s.boot
}
