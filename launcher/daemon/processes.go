package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
)

// Process is a process of an app.
type Process struct {
	App     string   `json:"app"`
	PID     int      `json:"pid"` // in the host's PID namespace
	PPID    string   `json:"ppid"`
	UID     string   `json:"uid"`   // effective
	State   string   `json:"state"` // a letter of proc_pid_stat(5) and its meaning
	Memory  string   `json:"memory"`
	Command []string `json:"command"` // the first 4 KiB; "…" ends a longer one
}

// Processes returns the processes of the pod's apps, a zombie included. A pod that has ended has none.
func (d *Daemon) Processes(pod *pods.Pod, apps []string) ([]Process, error) {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, app := range apps {
		pids, err := group.PIDsBelow(filepath.Join(names.AppsCgroup, app)) // an app that has ended has none
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			p, err := readProcess(pid)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // it has ended meanwhile
			}
			if err != nil {
				return nil, err
			}
			p.App = app
			all = append(all, p)
		}
	}
	return all, nil
}

// readProcess reads proc_pid_status(5) and proc_pid_cmdline(5).
func readProcess(pid int) (Process, error) {
	p := Process{PID: pid, Memory: "-"}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, err
	}
	name := p.setStatus(string(status))
	if p.Command = readCommand(pid); p.Command == nil {
		p.Command = []string{"[" + name + "]"}
	}
	return p, nil
}

// maxCommand limits how much of a command is read, in bytes: an app can make its command as large as its memory.
const maxCommand = 4 << 10

// readCommand returns a process's command, a long one cut and marked with "…"; nil for a process without, as a zombie.
func readCommand(pid int) (words []string) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	defer file.Close()
	command, _ := io.ReadAll(io.LimitReader(file, maxCommand+1))
	if len(command) == 0 {
		return nil
	}
	mark := ""
	if len(command) > maxCommand {
		command, mark = command[:wholeRunes(command[:maxCommand])], "…"
	}
	for word := range bytes.SplitSeq(bytes.TrimSuffix(command, []byte{0}), []byte{0}) {
		words = append(words, strings.ToValidUTF8(string(word), "\ufffd"))
	}
	words[len(words)-1] += mark
	return words
}

// setStatus sets what /proc/PID/status says, and returns the process's name.
func (p *Process) setStatus(status string) (name string) {
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "Name":
			name = value
		case "State":
			p.State = value
		case "PPid":
			p.PPID = value
		case "Uid":
			if fields := strings.Fields(value); len(fields) > 1 {
				p.UID = fields[1]
			}
		case "VmRSS":
			p.Memory = value
		}
	}
	return name
}
