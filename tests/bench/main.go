// Bench measures the stager beside runc, crun, conmon, podman and cnitool in one run on one
// machine, and prints the medians and their ratios as tables.
//
//	go run ./tests/bench [-runs N] [-only ready,run,streams,logs,memory,network]
//
// It runs as root, in a mount namespace of its own that holds all of its files,
// and leaves nothing behind. Every app, ours and the peers', has a root that is an
// overlay of the same five layers, the same 14 capabilities, masked paths and
// mounts, and the default seccomp profile of Moby.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// options are what the command line decides.
type options struct {
	runs int    // samples of each figure
	only string // parts to run, with commas between
	bin  string // folder of the launcher
	aci  string // the stager image
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	if plan := os.Getenv(planVariable); plan != "" {
		return becomeStager(plan)
	}
	var o options
	flag.IntVar(&o.runs, "runs", 20, "samples of each figure")
	flag.StringVar(&o.only, "only", "ready,run,streams,logs,memory,network", "parts to run")
	flag.StringVar(&o.bin, "bin", "bin", "folder of the launcher")
	flag.StringVar(&o.aci, "aci", "", "the stager image")
	flag.Parse()
	for _, path := range []*string{&o.bin, &o.aci} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		*path = abs
	}
	if !insideOwnNamespace() {
		return reexecInOwnNamespace()
	}
	return bench(o)
}

func bench(o options) (err error) {
	h, err := newHost()
	if err != nil {
		return err
	}
	defer func() {
		if e := h.close(); err == nil {
			err = e
		}
	}()
	d, err := newDaemon(h, o.bin, o.aci)
	if err != nil {
		return err
	}
	b := &benchmark{options: o, host: h, daemon: d}
	if err := b.peers(); err != nil {
		return err
	}
	parts := []struct {
		name string
		run  func() error
	}{
		{"ready", b.ready},
		{"run", b.run},
		{"streams", b.streams},
		{"logs", b.logs},
		{"memory", b.memory},
		{"network", b.network},
	}
	for _, part := range parts {
		if !strings.Contains(","+o.only+",", ","+part.name+",") {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	return nil
}

// benchmark is everything that the parts share.
type benchmark struct {
	options
	host   *host
	runc   *oci
	crun   *oci
	daemon *daemon
}

// peers prepares Debian's runc and crun. The host's cgroups suit runc; crun
// gets a mount namespace with plain cgroup2 and makes no cgroups at all, since it
// refuses a host that has both versions.
func (b *benchmark) peers() error {
	b.runc = &oci{name: "runc", program: "runc", host: b.host, cgroups: true, do: func(f func() error) error { return f() }}
	plain, err := startThread(mountPlainCgroup2)
	if err != nil {
		return fmt.Errorf("make a namespace for crun: %w", err)
	}
	b.crun = &oci{name: "crun", program: "crun", global: []string{"--cgroup-manager=disabled"}, host: b.host, do: plain.do}
	return nil
}
