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
)

// killTree kills all processes in a cgroup and those below it, and waits until
// they are gone.
func killTree(dir string) error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		pids, err := processesBelow(dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of cgroup %s: %w", pid, dir, err)
			}
		}
	}
	return fmt.Errorf("kill cgroup %s: it is not empty after 10 seconds", dir)
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
