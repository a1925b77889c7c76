package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	"github.com/spf13/cobra"
)

// processInfo is what `top --json` prints of a process.
type processInfo struct {
	App     string   `json:"app"`
	PID     int      `json:"pid"` // in the host's PID namespace
	PPID    string   `json:"ppid"`
	UID     string   `json:"uid"`   // effective
	State   string   `json:"state"` // a letter of proc_pid_stat(5) and its meaning
	Memory  string   `json:"memory"`
	Command []string `json:"command"`
}

// topCommand is `top`.
func topCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "top POD [APP]",
		Short:             "list the processes of a pod's apps",
		Long:              "top lists the processes of an app, or of all apps of the pod, with their numbers on the host.",
		Args:              wants(1, 2, "POD [APP]"),
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(_ *cobra.Command, args []string) error { return c.top(args) },
	}
}

func (c *cli) top(args []string) error {
	pod, rest, err := c.findPod("top", args)
	if err != nil {
		return err
	}
	if pod.Ended() {
		return fmt.Errorf("pod %q has ended; launcher logs %[1]s shows what it has written", pod.Plan.Name)
	}
	apps := appNames(pod)
	if len(rest) > 0 {
		a, err := app(pod, rest)
		if err != nil {
			return err
		}
		apps = []string{a.Name}
	}
	all, err := processesOf(pod, apps)
	if err != nil {
		return err
	}
	if c.json {
		for _, p := range all {
			if err := c.printJSON(p); err != nil {
				return err
			}
		}
		return nil
	}
	out := c.table("APP", "PID", "PPID", "UID", "STATE", "MEMORY", "COMMAND")
	for _, p := range all {
		out.row(p.App, p.PID, p.PPID, p.UID, p.State, p.Memory, strings.Join(p.Command, " "))
	}
	return out.flush()
}

func processesOf(pod *pods.Pod, apps []string) ([]processInfo, error) {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	var all []processInfo
	for _, app := range apps {
		u, _ := group.Usage(filepath.Join(names.AppsCgroup, app)) // an app that has ended has no processes
		for _, pid := range u.Processes {
			if p, ok := readProcess(pid); ok {
				p.App = app
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// readProcess reads proc_pid_status(5) and proc_pid_cmdline(5). It returns false for a process that has
// ended meanwhile.
func readProcess(pid int) (processInfo, bool) {
	p := processInfo{PID: pid, Memory: "-"}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return p, false
	}
	name := ""
	for line := range strings.Lines(string(status)) {
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
	command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
	for _, word := range bytes.Split(bytes.TrimSuffix(command, []byte{0}), []byte{0}) {
		p.Command = append(p.Command, strings.ToValidUTF8(string(word), "\ufffd"))
	}
	if len(command) == 0 {
		p.Command = []string{"[" + name + "]"}
	}
	return p, true
}
