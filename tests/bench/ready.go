package main

import (
	"fmt"
	"time"
)

// ready measures the time until all apps of a pod run. For the stager, which starts apps directly or by libcontainer: from its
// exec to end of file on descriptor 4, in a root that the daemon has prepared.
// For the peers: overlays mounted and runtimes run, bundles written before, in the
// best of the ways that were tried.
func (b *benchmark) ready() error {
	t := newTable("pod ready: all apps run, medians of "+fmt.Sprint(b.runs),
		"apps", "stager", "libcontainer", "runc", "crun", "stager/libcontainer", "stager/runc", "stager/crun", "runc's best way", "crun's best way")
	for _, n := range []int{1, 10, 50} {
		runc, err := b.runc.bestWay(n)
		if err != nil {
			return err
		}
		crun, err := b.crun.bestWay(n)
		if err != nil {
			return err
		}
		samples, err := collect(b.runs, []func() (time.Duration, error){
			func() (time.Duration, error) { return b.daemon.timeReady(n, directConfig) },
			func() (time.Duration, error) { return b.daemon.timeReady(n, libcontainerConfig) },
			func() (time.Duration, error) { return b.runc.timeReady(n, runc) },
			func() (time.Duration, error) { return b.crun.timeReady(n, crun) },
		})
		if err != nil {
			return err
		}
		ours, l, r, c := median(samples[0]), median(samples[1]), median(samples[2]), median(samples[3])
		t.row(n, ours, l, r, c, ratio(ours, l), ratio(ours, r), ratio(ours, c), runc, crun)
	}
	return t.end()
}

// timeReady starts a pod of n apps, ends it, and returns how long the start took.
func (o *oci) timeReady(n int, w way) (time.Duration, error) {
	p, err := o.newPod(n, w, "/bin/pause")
	if err != nil {
		return 0, err
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
			samples, err := collect(3, []func() (time.Duration, error){
				func() (time.Duration, error) { return o.timeReady(n, w) },
			})
			if err != nil {
				return way{}, fmt.Errorf("try %s %s: %w", o.name, w, err)
			}
			if took := median(samples[0]); least == 0 || took < least {
				best, least = w, took
			}
		}
	}
	return best, nil
}
