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
	"kurma.io/stager/spec"
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
func checkDescriptors(apps int) error {
	const (
		own = 100 // the supervisor with one app that starts has some 70, commands and connections have the rest
		app = 20  // an app has 11, and up to 7 more while it starts; all start at once
	)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if need := own + app*apps; limit.Cur < uint64(need) {
		return fmt.Errorf("the limit of open files (ulimit -Hn) is %d: a pod of %d apps needs at least %d",
			limit.Cur, apps, need)
	}
	return nil
}

// guardLimits prevents apps from changing the supervisor's resource limits. The supervisor and
// root's apps have the same user and group IDs, which is all that prlimit(2) checks, and no
// Landlock domain denies the call. guardLimits gives the supervisor a saved group ID that no app
// has; then only apps with CAP_SYS_RESOURCE can change its limits. A FUSE file system that
// serves only its mounter also compares these IDs, so this step comes after the roots and
// volumes. execve(2) resets the saved group ID to the effective one.
func guardLimits(_ context.Context, p *Pod) error {
	const unused = 65534
	if err := unix.Setresgid(-1, -1, unused); err != nil {
		err = os.NewSyscallError("setresgid", err)
		p.Log.Warn("apps of user 0 can change the supervisor's resource limits", "error", err)
	}
	if err := limitPendingSignals(); err != nil {
		p.Log.Warn("apps can take the machine's queue of user 0's signals", "error", err)
	}
	p.guardLife()
	return nil
}

// limitPendingSignals gives the supervisor the limit of an app. Signals with data queue up at a thread that blocks
// them, and count for the user of that thread until its own limit is reached, whoever sends them (sigqueue(3)). The
// supervisor waits for none.
func limitPendingSignals() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_SIGPENDING, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	limit.Cur, limit.Max = min(limit.Cur, spec.PendingSignals), min(limit.Max, spec.PendingSignals)
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_SIGPENDING, &limit))
}

// guardLife makes the supervisor the OOM killer's last choice: the supervisor's end ends every app,
// and in a cgroup full of small processes the supervisor would be the largest.
func (p *Pod) guardLife() {
	if err := reserveMemory(filepath.Join(names.CgroupDir, names.LeafCgroup)); err != nil {
		p.Log.Warn("the supervisor has no memory reserve", "error", err)
	}
	lowest := strconv.Itoa(p.Plan.OOMScoreAdj)
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(lowest), 0); err != nil {
		p.Log.Warn("the OOM killer may choose the supervisor before an app", "error", err)
	}
}

// reserveMemory protects the memory of the cgroup of the waiter and the supervisor from the apps, in a version 2
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
