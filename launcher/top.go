package main

import (
	"fmt"
	"strings"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

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
		return fmt.Errorf("pod %q has ended; launcher logs %[1]s shows the output", pod.Plan.Name)
	}
	apps, err := appNames(pod, rest)
	if err != nil {
		return err
	}
	all, err := c.daemon.Processes(pod, apps)
	if err != nil {
		return err
	}
	return c.printProcesses(all)
}

func (c *cli) printProcesses(all []daemon.Process) error {
	if c.json {
		return printAll(c, all)
	}
	out := c.table("APP", "PID", "PPID", "UID", "STATE", "MEMORY", "COMMAND")
	for _, p := range all {
		out.row(p.App, p.PID, p.PPID, p.UID, p.State, p.Memory, strings.Join(p.Command, " "))
	}
	return out.flush()
}
