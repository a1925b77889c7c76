package reap

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanDelay is how long orphans stay zombies during starts: an orphan may be a start's helper, before its wait, or
// the new process, before the start reads its /proc and returns it.
const orphanDelay = 2 * time.Second

// reapOrphans collects the orphans that have been zombies for orphanDelay, and sees to it that the others are looked at
// then. The caller holds mu.
func (r *Reaper) reapOrphans() {
	now, waiting := time.Now(), false
	for _, pid := range childrenOfFirstThread() {
		if r.known[pid] != nil || !isZombie(pid) {
			continue
		}
		if _, seen := r.ended[pid]; !seen {
			r.ended[pid], waiting = now, true
		}
		if now.Sub(r.ended[pid]) >= orphanDelay {
			delete(r.ended, pid)
			r.collect(pid)
		}
	}
	if waiting {
		time.AfterFunc(orphanDelay, r.wake)
	}
}

// isZombie returns whether a child has ended and was not collected.
func isZombie(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0 // 0 for a living child
}

// wake has the loop look at the children again.
func (r *Reaper) wake() {
	select {
	case r.children <- syscall.SIGCHLD:
	default: // it is going to
	}
}

// childrenOfFirstThread returns the children of this program's first thread, living and ended ones:
// registered children and orphans; none on a kernel without CONFIG_PROC_CHILDREN.
func childrenOfFirstThread() (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	for _, field := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
