package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"kurma.io/stager/names"
)

// callers is the number of commands that the second row runs at once.
const callers = 8

// trueSettings are what the daemon passes to the stager's run.
const trueSettings = `{"exec": ["/bin/true"], "user": "0", "group": "0"}`

// running is a pod of one app, of a contestant: what is called in it, and how it is closed.
type running struct {
	exec, status func() error
	close        func() error
}

// run measures /bin/true in a running app: alone, and 8 at once until the last
// has ended; and the app's status. For the stager: from entering its namespaces to the exit of its run, or of its status.
func (b *benchmark) run() (err error) {
	var all []running
	defer func() {
		for _, r := range all {
			err = errors.Join(err, r.close())
		}
	}()
	for _, config := range []string{directConfig, libcontainerConfig} {
		r, err := b.daemon.running(config)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	for _, o := range []*oci{b.runc, b.crun} {
		r, err := o.running()
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	t := newContest("run of /bin/true in a running app, and its status (state of the peers), medians of "+fmt.Sprint(5*b.runs), "")
	for _, row := range []struct {
		label string
		call  func(running) error
	}{
		{"run", func(r running) error { return r.exec() }},
		{fmt.Sprintf("run, %d callers", callers), func(r running) error { return atOnce(callers, r.exec) }},
		{"status", func(r running) error { return r.status() }},
	} {
		var contestants []func() (cost, error)
		for _, r := range all {
			contestants = append(contestants, func() (cost, error) { return timed(func() error { return row.call(r) }) })
		}
		samples, err := collect(5*b.runs, contestants)
		if err != nil {
			return err
		}
		t.add(row.label, samples, walls)
	}
	return b.print(t)
}

func (d *daemon) running(config string) (running, error) {
	p, err := d.start(1, config, "/bin/pause")
	if err != nil {
		return running{}, err
	}
	return running{
		exec:   func() error { return p.enter(trueSettings, names.CallInDir+"/"+names.Run, "app0") },
		status: func() error { return p.enter("", names.CallInDir+"/"+names.Status) },
		close:  p.close,
	}, nil
}

func (o *oci) running() (running, error) {
	p, err := o.newPod(1, way{degree: 1}, "/bin/pause")
	if err != nil {
		return running{}, err
	}
	if _, err := p.start(); err != nil {
		return running{}, err
	}
	return running{
		exec:   func() error { return p.exec("/bin/true") },
		status: func() error { return p.command("state", p.apps[0]).Run() },
		close:  p.close,
	}, nil
}

// timed is the time that f takes.
func timed(f func() error) (cost, error) {
	begin := time.Now()
	err := f()
	return cost{wall: time.Since(begin)}, err
}

// atOnce calls f n times at once and returns when the last has come back.
func atOnce(n int, f func() error) error {
	var group errgroup.Group
	for range n {
		group.Go(f)
	}
	return group.Wait()
}
