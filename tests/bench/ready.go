package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// ready measures what it costs until all apps of a pod run. For the stager, which starts apps directly or by libcontainer: from
// its exec to end of file on descriptor 4, in a root that the daemon has prepared.
// For the peers: overlays mounted and runtimes run, bundles written before, in the
// best of the ways that were tried.
func (b *benchmark) ready() error {
	sizes := []int{1, 10, 50}
	wall := newContest("pod ready: all apps run, medians of "+fmt.Sprint(b.runs), "apps")
	cpu := newContest("CPU time of the pod's cgroup until it is ready", "apps")
	for _, n := range sizes {
		tried := min(n, 10) // the best way to start 10 is that of 50, where a try takes ten times as long
		runc, err := b.runc.bestWay(tried)
		if err != nil {
			return err
		}
		crun, err := b.crun.bestWay(tried)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%d apps: runc's best way is %s, crun's %s\n", n, runc, crun)
		samples, err := collect(b.runs, []func() (cost, error){
			func() (cost, error) { return b.daemon.costReady(n, directConfig) },
			func() (cost, error) { return b.daemon.costReady(n, libcontainerConfig) },
			func() (cost, error) { return b.runc.costReady(n, runc) },
			func() (cost, error) { return b.crun.costReady(n, crun) },
		})
		if err != nil {
			return err
		}
		wall.add(n, samples, walls)
		cpu.add(n, samples, cpus)
	}
	return errors.Join(b.print(wall), b.print(cpu), cpu.printFurther(sizes))
}

// costReady starts a pod of n apps, ends it, and returns what the start cost.
func (o *oci) costReady(n int, w way) (cost, error) {
	p, err := o.newPod(n, w, "/bin/pause")
	if err != nil {
		return cost{}, err
	}
	took, err := p.start()
	if e := p.close(); err == nil {
		err = e
	}
	return took, err
}

// bestWay tries the ways to start n apps a few times each.
func (o *oci) bestWay(n int) (way, error) {
	var best way
	var least time.Duration
	for _, shared := range []bool{false, true} {
		for _, degree := range []int{1, 2, 4, 8} {
			if degree > n || n == 1 && shared {
				continue
			}
			w := way{degree: degree, shared: shared}
			samples, err := collect(3, []func() (cost, error){
				func() (cost, error) { return o.costReady(n, w) },
			})
			if err != nil {
				return way{}, fmt.Errorf("try %s %s: %w", o.name, w, err)
			}
			if took := median(walls(samples[0])); least == 0 || took < least {
				best, least = w, took
			}
		}
	}
	return best, nil
}
