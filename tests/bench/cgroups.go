package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// killTree kills all processes in a cgroup and those below it, and waits until
// they are gone.
func killTree(dir string) error {
	var err error
	gone := poll.Until(10*time.Second, 10*time.Millisecond, func() bool {
		var pids []int
		if pids, err = processesBelow(dir); err == nil {
			err = killAll(pids)
		}
		return err != nil || len(pids) == 0
	})
	if err == nil && !gone {
		err = errors.New("it is not empty after 10 seconds")
	}
	if err != nil {
		return fmt.Errorf("kill cgroup %s: %w", dir, err)
	}
	return nil
}

func killAll(pids []int) error {
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

func processesBelow(dir string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		text, err := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			if pid, e := strconv.Atoi(field); e == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	return pids, err
}
