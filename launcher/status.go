package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// statusCommand is `status`: a table, or with --json the call-in's own document.
func statusCommand(c *cli) *cobra.Command {
	isolators := false
	cmd := &cobra.Command{
		Use:   "status POD  |  status --isolators POD [APP]",
		Short: "show the apps of a pod",
		Long: `status shows the state of a pod's apps, how often each was restarted, how its latest run has ended, or while
it runs the run before, and what its health checks say. With --isolators it prints whether each isolator of an app is
enforced, changed or ignored.`,
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.status(cmd.Context(), args, isolators) },

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&isolators, "isolators", false,
		"print whether each isolator of an app is enforced, changed or ignored, as JSON")
	return cmd
}

func (c *cli) status(ctx context.Context, args []string, isolators bool) error {
	pod, rest, err := c.findPod("status", args)
	if err != nil {
		return err
	}
	if isolators && len(rest) <= 1 {
		return c.isolators(ctx, pod, rest)
	}
	if len(rest) > 0 {
		return usageError{"status: want one POD, or --isolators POD [APP]"}
	}
	status, err := c.daemon.Status(ctx, pod)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(status.Document) // the encoder makes it one line
	}
	return c.printStatus(pod, status.Apps)
}

func (c *cli) isolators(ctx context.Context, pod *pods.Pod, names []string) error {
	a, err := app(pod, names)
	if err != nil {
		return err
	}
	document, err := c.daemon.Isolators(ctx, pod, a.Name)
	if err != nil {
		return err
	}
	if !c.json {
		_, err = c.stdout.Write(document)
		return err
	}
	return c.printJSON(document)
}

func (c *cli) printStatus(pod *pods.Pod, apps map[string]pods.AppStatus) error {
	head := []any{"APP", "STATE", "PID", "RESTARTS", "EXIT", "REASON"}
	checked := false
	for _, a := range apps {
		checked = checked || a.Health != ""
	}
	if checked {
		head = append(head, "HEALTH")
	}
	out := c.table(head...)
	for _, name := range daemon.AppNames(pod) {
		a := apps[name]
		code, reason := exitText(pod, a)
		row := []any{name, appText(a), orDash(a.PID), a.Restarts, code, reason}
		if checked {
			row = append(row, healthText(a))
		}
		out.row(row...)
	}
	return out.flush()
}

// healthText is the health of an app, and why its latest check has failed.
func healthText(a pods.AppStatus) string {
	text := cmp.Or(string(a.Health), "-")
	switch {
	case a.HealthFailures == 1:
		text += ", 1 failure"
	case a.HealthFailures > 1:
		text += fmt.Sprintf(", %d failures", a.HealthFailures)
	}
	if a.HealthReason != "" {
		text += ": " + a.HealthReason
	}
	return text
}

// appText is the state of an app.
func appText(a pods.AppStatus) string {
	switch {
	case a.Restarting:
		return "restarting"
	case a.Exited:
		return "exited"
	case a.Ending:
		return "ending"
	case a.PID == 0:
		return "starting"
	}
	return "running"
}

// exitText is how an app's latest run has ended, or while it runs the run before.
func exitText(pod *pods.Pod, a pods.AppStatus) (code, reason string) {
	switch {
	case a.Exited && a.Code == nil && pod.Killed():
		return "?", "ended with the stager"
	case a.Exited && a.Code == nil:
		return "?", "last state not kept"
	case !a.Exited:
		a.Code, a.Reason = a.LastCode, a.LastReason
	}
	if a.Code == nil {
		return "-", "-"
	}
	return strconv.Itoa(*a.Code), reasonText(a.Reason)
}

func orDash(pid int) string {
	if pid == 0 {
		return "-"
	}
	return strconv.Itoa(pid)
}
