// Bench measures the stager beside runc, crun, conmon, podman and cnitool in one run on one
// machine, and prints a page of Markdown: the medians as tables, with the ratios: medians of the ratios of each round,
// and their quartiles. With -plot it also draws the comparisons with crun.
//
//	go run ./tests/bench [-runs N] [-plot FILE] [-only ready,run,stop,streams,logs,memory,network]
//	go run ./tests/bench -only many
//
// It runs as root, in a mount namespace of its own that holds all of its files and
// version 2 of the cgroups alone, and leaves nothing behind. Every app, ours and the peers', has a root that is an
// overlay of the same five layers, a cgroup with a policy of devices, the same 14 capabilities, masked paths and
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
	plot string // an SVG file to write, or ""
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
	flag.StringVar(&o.only, "only", "ready,run,stop,streams,logs,memory,network", "parts to run")
	flag.StringVar(&o.bin, "bin", "bin", "folder of the launcher")
	flag.StringVar(&o.aci, "aci", "", "the stager image")
	flag.StringVar(&o.plot, "plot", "", "draw the comparisons with crun to this SVG `file`")
	flag.Parse()
	for _, path := range []*string{&o.bin, &o.aci, &o.plot} {
		if *path == "" {
			continue
		}
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
	if err := printHead(o.runs, o.plot); err != nil {
		return err
	}
	parts := []struct {
		name string
		run  func() error
	}{
		{"ready", b.ready},
		{"run", b.run},
		{"stop", b.stop},
		{"streams", b.streams},
		{"logs", b.logs},
		{"memory", b.memory},
		{"network", b.network},
		{"many", b.many},
	}
	for _, part := range parts {
		if !strings.Contains(","+o.only+",", ","+part.name+",") {
			continue
		}
		if err := part.run(); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	if o.plot == "" {
		return nil
	}
	return writePlot(o.plot, b.contests)
}

// benchmark is everything that the parts share.
type benchmark struct {
	options
	host   *host
	runc   *oci
	crun   *oci
	daemon *daemon

	contests []*contest // that have been printed
}

// peers prepares Debian's runc and crun.
func (b *benchmark) peers() error {
	b.runc = &oci{name: "runc", host: b.host}
	b.crun = &oci{name: "crun", global: []string{"--cgroup-manager=cgroupfs"}, host: b.host}
	library := filepath.Join(b.host.dir, "memlock.so")
	if err := b.host.compile("preload/memlock.c", library, "-shared", "-fPIC"); err != nil {
		return err
	}
	b.crun.env = []string{"LD_PRELOAD=" + library}
	return nil
}
