package inject

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kurma.io/stager/names"
)

// role is the part that a process plays.
type role string

const (
	command    role = "command"    // the launcher, as a person calls it
	monitor    role = "monitor"    // the launcher beside a pod, or kurma-cri beside that of a plugin
	holder     role = "holder"     // the main process of a plugin's container
	supervisor role = "supervisor" // the stager
	podInit    role = "init"       // the pod's process 1
	child      role = "child"      // a fork of init that becomes an app
	callIn     role = "callin"     // the stager, as the daemon calls it
	server     role = "server"     // kurma-cri
	plugin     role = "plugin"     // a network's plugin, and the programs that it runs
)

// roleOf returns the role of a thread's process, "" for an app, a tool of the test, or a process that has ended.
func roleOf(tid uint32) role {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", tid))
	if err != nil {
		return ""
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", tid))
	argv := strings.Split(string(line), "\x00")
	switch filepath.Base(exe) {
	case names.Program:
		return stagerRole(tid, argv)
	case "launcher", ".hold", "kurma-cri":
		for word, r := range map[string]role{"monitor": monitor, "hold": holder, "hold-pids": holder} {
			if slices.Contains(argv, word) {
				return r
			}
		}
		if filepath.Base(exe) == "kurma-cri" {
			return server
		}
		return command
	case "busybox", "inject.test":
		return ""
	}
	return plugin
}

// stagerRole tells the roles of the stager's program by the process's PID namespaces: a child may be process 1 of its own
// below the pod's.
func stagerRole(tid uint32, argv []string) role {
	if slices.Contains(names.CallIns(), filepath.Base(argv[0])) {
		return callIn
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	numbers := field(string(status), "NStgid")
	own, _ := os.ReadFile("/proc/self/status")
	switch deeper := len(numbers) - len(field(string(own), "NStgid")); {
	case deeper == 0:
		return supervisor
	case deeper == 1 && numbers[len(numbers)-1] == "1":
		return podInit
	}
	return child
}

// field returns the words of a line of /proc/PID/status, at least one.
func field(status, name string) []string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				return words
			}
		}
	}
	return []string{""}
}
