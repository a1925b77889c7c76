// Package daemon is the daemon's part on one machine, as a library: images and the keys that may sign them, pods,
// their logs, events and limits, and networks. Command launcher is its face.
//
// The package prints nothing, reads no command line and never ends the process. Warnings are values. A context that
// ends interrupts a call, which returns the context's cause, unless the call's comment says otherwise. Several
// daemons, also in several processes, may use the same folders at once; all that they know is on disk.
package daemon

import (
	"fmt"
	"slices"
	"time"

	"kurma.io/stager/launcher/networks"
)

// Daemon works with the folders of one configuration. Its methods may be called at the same time.
type Daemon struct {
	config   Config
	networks []networks.Network
	programs Programs
	progress func(what string) func(done, size int64)
	callTime time.Duration
	livePods func() ([]string, error)
}

// Programs are the command lines with which a daemon starts processes that outlive a call. Pods that are started
// detached, and networks, need them; all must be programs of the machine that stay where they are.
type Programs struct {
	// Monitor is this program's own command line, with its name as the first word, for a process that calls Daemon.Monitor
	// with the word that is added to it. The daemon executes the program again, in the host's root folder.
	Monitor []string
	// Hold is the path of a program, linked statically, that waits until it is stopped if its argument is "hold". It is
	// the main process of a network's container. With "" no pod is connected to networks.
	Hold string
}

// Options is what a daemon needs beside its configuration.
type Options struct {
	// State is the folder of what the configuration names no folder for; "" for DefaultState.
	State    string
	Programs Programs
	// Progress returns a function that is called with the bytes of the named thing that have been imported, and with all
	// that there are; either may be nil.
	Progress func(what string) func(done, size int64)
	// CallTime limits each call of a network's plugin that this process makes; 0 for networks.CallTime, the minute of the
	// Kurma Network Specification.
	CallTime time.Duration
	// LivePods is plugins.Containers.Live.
	LivePods func() ([]string, error)
}

// Open returns the daemon of a configuration. Missing keys have their defaults. It makes nothing on disk: each
// method makes the folders that it needs.
func Open(config Config, o Options) (*Daemon, error) {
	config.fill(o.State)
	config.TrustedKeys = slices.Clone(config.TrustedKeys) // the caller's
	if err := config.resolve(); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	all, err := networks.Parse(config.ContainerNetworks)
	if err == nil {
		all, err = networks.ReadFolder(config.ContainerNetworksDirectory, all)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return &Daemon{
		config: config, networks: all, programs: o.Programs, progress: o.Progress, callTime: o.CallTime,
		livePods: o.LivePods,
	}, nil
}

// Networks returns the networks of the configuration.
func (d *Daemon) Networks() []networks.Network { return d.networks }
