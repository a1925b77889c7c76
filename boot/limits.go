package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/supervisor"
)

// reserveThreads begins to make the threads of the starts, beside the next steps; runApps waits for them. It is an
// early step, because the Go runtime gives each thread a stack for signals, 32 KiB that take no memory if they lie
// where nothing was before.
func reserveThreads(_ context.Context, p *Pod) error {
	reserved := make(chan struct{})
	p.reserved = reserved
	go func() {
		defer close(reserved)
		supervisor.ReserveThreads(len(p.Plan.Apps))
	}()
	return nil
}

// checkDescriptors refuses a pod whose apps could exhaust the process's descriptors, which the kernel would refuse at
// some call of some app, in the start or, worse, in a later command or the stop.
func checkDescriptors(apps []plan.App) error {
	const (
		own   = 100 // the supervisor with one app that starts has some 70, commands and connections have the rest
		app   = 20  // an app has 11, and up to 7 more while it starts; all start at once
		check = 10  // of an app's health, while its command starts
	)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	need := own + app*len(apps)
	for _, a := range apps {
		if a.Health != nil {
			need += check
		}
	}
	if limit.Cur < uint64(need) {
		return fmt.Errorf("the limit of open files (ulimit -Hn) is %d: a pod of %d apps needs at least %d",
			limit.Cur, len(apps), need)
	}
	return nil
}

// guardLife makes the supervisor and init the OOM killer's last choice: their end ends every app,
// and in a cgroup full of small processes the supervisor would be the largest.
func guardLife(_ context.Context, p *Pod) error {
	if err := reserveMemory(filepath.Join(names.CgroupDir, names.LeafCgroup)); err != nil {
		p.Log.Warn("the supervisor has no memory reserve", "error", err)
	}
	lowest := strconv.Itoa(p.Plan.OOMScoreAdj)
	for _, pid := range []int{os.Getpid(), p.Init.PID()} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(lowest), 0); err != nil {
			p.Log.Warn("the OOM killer may choose the supervisor or init before an app", "error", err)
		}
	}
	return nil
}

// reserveMemory protects the memory of the cgroup of the supervisor and init from the apps, in a version 2
// hierarchy (memory.min): where the cgroup around both is full, the kernel takes the apps' pages first. Version 1 has
// no such file, nor has a hierarchy without the memory controller.
func reserveMemory(leaf string) error {
	const reserve = 16 << 20 // as apps leave to them (leaveRoomForStager of package cgroup)
	err := os.WriteFile(filepath.Join(leaf, "memory.min"), []byte(strconv.Itoa(reserve)), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
