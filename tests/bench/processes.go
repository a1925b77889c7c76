package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// process is a process as /proc shows it.
type process struct {
	pid  int
	name string // comm, 15 characters at most
}

// parseStat takes /proc/PID/stat apart: PID (NAME) STATE PPID …, where the name
// may contain anything (proc(5)).
func parseStat(text string) (pid, name, ppid string) {
	begin, end := strings.Index(text, "("), strings.LastIndex(text, ")")
	return strings.TrimSpace(text[:begin]), text[begin+1 : end], strings.Fields(text[end+1:])[1]
}

// children lists the children of a process. Not every kernel has the file
// /proc/PID/task/TID/children, so each process is asked for its parent.
func children(of int) ([]process, error) {
	files, err := filepath.Glob("/proc/[1-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		number, name, ppid := parseStat(string(text))
		if ppid != strconv.Itoa(of) {
			continue
		}
		pid, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		found = append(found, process{pid, name})
	}
	return found, nil
}

// find waits for a descendant of pid with that name.
func find(pid int, name string) (int, error) {
	found := 0
	poll.Until(10*time.Second, time.Millisecond, func() bool {
		all := descendants(pid)
		if i := slices.IndexFunc(all, func(p process) bool { return p.name == name }); i >= 0 {
			found = all[i].pid
		}
		return found != 0
	})
	if found == 0 {
		return 0, fmt.Errorf("find process %s below %d: there is none", name, pid)
	}
	return found, nil
}

// awaitSigwait waits until a process waits for a signal: before that it would die
// of it (proc(5), syscall).
func awaitSigwait(pid int) error {
	wanted := strconv.Itoa(unix.SYS_RT_SIGTIMEDWAIT) + " "
	var err error
	waits := poll.Until(10*time.Second, time.Millisecond, func() bool {
		var text []byte
		text, err = os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		return err != nil || strings.HasPrefix(string(text), wanted)
	})
	if err == nil && !waits {
		err = fmt.Errorf("wait until process %d waits for a signal: it does not", pid)
	}
	return err
}

func descendants(pid int) []process {
	found, err := children(pid)
	if err != nil {
		return nil
	}
	for _, child := range found {
		found = append(found, descendants(child.pid)...)
	}
	return found
}

// processes are the stager's own: the supervisor, init and whatever else of
// them runs, the apps left out.
func (p *pod) processes() []int {
	found := []int{p.cmd.Process.Pid}
	for _, child := range descendants(p.cmd.Process.Pid) {
		if child.name != "pause" && child.name != "writer" {
			found = append(found, child.pid)
		}
	}
	return found
}

// pss is the proportional set size of a process in MiB (proc(5), smaps_rollup).
func pss(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("read smaps_rollup: no Pss")
}

// sumPSS adds up the memory of processes.
func sumPSS(pids []int) (float64, error) {
	var sum float64
	for _, pid := range pids {
		mib, err := pss(pid)
		if err != nil {
			return 0, fmt.Errorf("read memory of process %d: %w", pid, err)
		}
		sum += mib
	}
	return sum, nil
}

// cpuTime is what the living threads of a process have run (schedstat, in
// nanoseconds; the ticks of stat are too coarse).
func cpuTime(pid int) (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		nanoseconds, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", file, err)
		}
		sum += time.Duration(nanoseconds)
	}
	return sum, nil
}
