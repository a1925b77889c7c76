package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// damagedPod is what `ps --json` shows of a damaged pod.
type damagedPod struct {
	UUID    string     `json:"uuid"`
	Name    string     `json:"name,omitempty"` // if it is known
	State   pods.Phase `json:"state"`
	Damaged string     `json:"damaged"` // why
}

// psOptions is the command line of `ps`.
type psOptions struct{ all, quiet bool }

// psCommand is `ps`: one line for each pod. Pods that have ended are listed with --all until rm
// or gc; those that are dead or damaged always.
func psCommand(c *cli) *cobra.Command {
	var o psOptions
	cmd := &cobra.Command{
		Use:               "ps",
		Short:             "list pods",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.listPods(cmd.Context(), o) },
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "list ended pods as well")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only the UUIDs")
	return cmd
}

func (c *cli) listPods(ctx context.Context, o psOptions) error {
	all, err := c.daemon.Pods()
	if err != nil {
		return err
	}
	if !o.all {
		all = slices.DeleteFunc(all, func(p *pods.Pod) bool { return p.State.Phase == pods.Exited })
	}
	if o.quiet && !c.json {
		for _, pod := range all {
			if _, err := fmt.Fprintln(c.stdout, pod.Plan.UUID); err != nil {
				return err
			}
		}
		return nil
	}
	infos := c.daemon.Describe(ctx, all...)
	if !c.json {
		return c.printPods(infos)
	}
	for _, info := range infos {
		var shown any = info
		if info.Damage != nil {
			shown = damagedPod{info.UUID, info.Name, info.State, oneLine(info.Damage)}
		}
		if err := c.printJSON(shown); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printPods(infos []daemon.PodInfo) error {
	out := c.table("UUID", "NAME", "STATE", "PID", "APPS", "CREATED ("+zone()+")")
	for _, info := range infos {
		if info.Damage != nil {
			out.row(info.UUID[:8], info.Name, info.State, "-", "-", oneLine(info.Damage))
			continue
		}
		out.row(info.UUID[:8], info.Name, stateText(info), pidText(info), appsText(info), localTime(info.Created))
	}
	return out.flush()
}

func stateText(info daemon.PodInfo) string {
	text := string(info.State)
	if info.State == pods.Exited {
		text = fmt.Sprintf("%s (%s)", text, codeText(info.Code))
	}
	if info.Reason != "" {
		text += ", " + reasonText(info.Reason)
	}
	if info.DisconnectError != "" {
		text += ", still connected"
	}
	return text
}

// reasonText is why an app has ended, for a person.
func reasonText(reason string) string {
	if reason == pods.OOMKilled {
		return "out of memory"
	}
	return reason
}

func pidText(info daemon.PodInfo) string {
	if info.State == pods.Exited || info.State == pods.Dead {
		return "-"
	}
	return strconv.Itoa(info.PID)
}

// appsText is how many of the pod's apps run, of how many.
func appsText(info daemon.PodInfo) string {
	running := "?"
	if info.Running != nil {
		running = strconv.Itoa(*info.Running)
	}
	return fmt.Sprintf("%s/%d", running, len(info.Apps))
}
