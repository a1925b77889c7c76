package main

import (
	"errors"
	"fmt"
	"time"
)

// settled is when the supervisor has released the memory of its start, which it does after three seconds.
const settled = 4 * time.Second

// memory measures the proportional set size of everything that looks after n
// apps: the supervisor and its init, and one conmon for each app and one
// more for the pod's own container, as Kubernetes has it; both as that many
// conmons measure, sharing their program and libraries, and as a single one's
// times their number. The apps are left out.
func (b *benchmark) memory() error {
	sizes := []int{1, 10, 50}
	conmons, err := b.conmonMemory(1, 2, 11, 51)
	if err != nil {
		return err
	}
	runs := min(b.runs, 5) // each waits
	t := newTable("memory (PSS) of what looks after the apps, the stager's a median of "+fmt.Sprint(runs),
		"apps", "stager MiB", "libcontainer MiB", "apps+1 conmons MiB", "one conmon x (apps+1) MiB", "stager/conmons", "stager/one x")
	for i, n := range sizes {
		samples, err := collect(runs, []func() (float64, error){
			func() (float64, error) { return b.daemon.memory(n, directConfig) },
			func() (float64, error) { return b.daemon.memory(n, libcontainerConfig) },
		})
		if err != nil {
			return err
		}
		ours := median(samples[0])
		together, single := conmons[i+1], conmons[0]*float64(n+1)
		t.row(n, ours, median(samples[1]), together, single, ratio(ours, together), ratio(ours, single))
	}
	return t.end()
}

// memory starts a pod of n apps, ends it, and returns how much it used.
func (d *daemon) memory(n int, config string) (float64, error) {
	p, err := d.start(n, config, "/bin/pause")
	if err != nil {
		return 0, err
	}
	return p.memory()
}

// memory ends the pod and returns how much it used when it had settled.
func (p *pod) memory() (float64, error) {
	time.Sleep(settled)
	sum, err := sumPSS(p.processes())
	return sum, errors.Join(err, p.close())
}

// conmonMemory starts conmons one after the other, and returns how much they
// use together at each of the rising numbers.
func (b *benchmark) conmonMemory(numbers ...int) (found []float64, err error) {
	var started []*monitored
	defer func() {
		for _, m := range started {
			err = errors.Join(err, m.close())
		}
	}()
	for _, n := range numbers {
		for len(started) < n {
			m, err := b.runc.monitor("/bin/pause")
			if err != nil {
				return nil, err
			}
			started = append(started, m)
		}
		var pids []int
		for _, m := range started {
			pids = append(pids, m.cmd.Process.Pid)
		}
		sum, err := sumPSS(pids)
		if err != nil {
			return nil, err
		}
		found = append(found, sum)
	}
	return found, nil
}
