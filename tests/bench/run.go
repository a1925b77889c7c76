package main

import (
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"kurma.io/stager/names"
)

// callers is the number of commands that the second row runs at once.
const callers = 8

// trueSettings are what the daemon passes to the stager's run.
const trueSettings = `{"exec": ["/bin/true"], "user": "0", "group": "0"}`

// run measures /bin/true in a running app: alone, and 8 at once until the last
// has ended. For the stager: from entering its namespaces to the exit of its run.
func (b *benchmark) run() (err error) {
	var execs, closers []func() error
	defer func() {
		for _, closer := range closers {
			if e := closer(); err == nil {
				err = e
			}
		}
	}()
	for _, config := range []string{directConfig, libcontainerConfig} {
		ours, err := b.daemon.start(1, config, "/bin/pause")
		if err != nil {
			return err
		}
		closers = append(closers, ours.close)
		execs = append(execs, func() error { return ours.enter(trueSettings, names.CallInDir+"/"+names.Run, "app0") })
	}
	for _, o := range []*oci{b.runc, b.crun} {
		p, err := o.newPod(1, way{degree: 1}, "/bin/pause")
		if err != nil {
			return err
		}
		if _, err := p.start(); err != nil {
			return err
		}
		closers = append(closers, p.close)
		execs = append(execs, func() error { return p.exec("/bin/true") })
	}
	return b.timeRuns(execs)
}

func (b *benchmark) timeRuns(execs []func() error) error {
	t := newTable("run of /bin/true in a running app, medians of "+fmt.Sprint(5*b.runs),
		"callers", "stager run", "libcontainer", "runc exec", "crun exec", "stager/libcontainer", "stager/runc", "stager/crun")
	for _, n := range []int{1, callers} {
		var contestants []func() (time.Duration, error)
		for _, exec := range execs {
			contestants = append(contestants, func() (time.Duration, error) { return timeAtOnce(n, exec) })
		}
		samples, err := collect(5*b.runs, contestants)
		if err != nil {
			return err
		}
		ours, libcontainer, runc, crun := median(samples[0]), median(samples[1]), median(samples[2]), median(samples[3])
		t.row(n, ours, libcontainer, runc, crun, ratio(ours, libcontainer), ratio(ours, runc), ratio(ours, crun))
	}
	return t.end()
}

// timeAtOnce calls f n times at once and returns when the last has come back.
func timeAtOnce(n int, f func() error) (time.Duration, error) {
	begin := time.Now()
	var group errgroup.Group
	for range n {
		group.Go(f)
	}
	err := group.Wait()
	return time.Since(begin), err
}
