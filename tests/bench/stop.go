package main

import (
	"errors"
	"fmt"
)

// stop measures the end of a pod of one app, from SIGTERM until its processes, mounts and cgroups are gone. For the stager:
// until it has ended. For the peers: kill, the end of the process, delete, and the root unmounted.
func (b *benchmark) stop() error {
	table := newContest("pod of one app stopped, medians of "+fmt.Sprint(b.runs), "apps")
	samples, err := collect(b.runs, []func() (cost, error){
		func() (cost, error) { return b.daemon.costStop(directConfig) },
		func() (cost, error) { return b.daemon.costStop(libcontainerConfig) },
		b.runc.costStop,
		b.crun.costStop,
	})
	if err != nil {
		return err
	}
	table.add(1, samples, walls)
	return b.print(table)
}

// costStop starts a pod of one app and returns what its end cost.
func (d *daemon) costStop(config string) (took cost, err error) {
	p, err := d.start(1, config, "/bin/pause")
	if err != nil {
		return cost{}, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	app, err := find(p.cmd.Process.Pid, "pause")
	if err == nil {
		err = awaitSigwait(app)
	}
	if err != nil {
		return cost{}, err
	}
	took, err = measure(p.cgroup, p.stop)
	p.cmd = nil
	return took, err
}

// costStop starts a container and returns what its end cost.
func (o *oci) costStop() (took cost, err error) {
	p, err := o.newPod(1, way{degree: 1}, "/bin/pause")
	if err != nil {
		return cost{}, err
	}
	if _, err := p.start(); err != nil {
		return cost{}, errors.Join(err, p.close())
	}
	app, err := p.first()
	if err != nil {
		return cost{}, errors.Join(err, p.close())
	}
	took, err = measure(p.id, func() error { return p.end(app) })
	return took, errors.Join(err, p.remove())
}
