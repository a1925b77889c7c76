package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// podInfo is what `ps --json` shows of a pod.
type podInfo struct {
	UUID    string     `json:"uuid"`
	Name    string     `json:"name"`
	State   pods.Phase `json:"state"`
	PID     int        `json:"pid"` // the stager's
	Apps    []string   `json:"apps"`
	Created time.Time  `json:"created"`
	Exit    *pods.Exit `json:"exit,omitempty"`
	// Networks are the networks that the pod is connected to, and its addresses there.
	Networks []pods.Connection `json:"networks,omitempty"`
	Log      string            `json:"log"` // file of the stager's own output
}

// damagedPod is what `ps --json` shows of a damaged pod.
type damagedPod struct {
	UUID    string     `json:"uuid"`
	Name    string     `json:"name,omitempty"` // if it is known
	State   pods.Phase `json:"state"`
	Damaged string     `json:"damaged"` // why
}

func describePod(pod *pods.Pod) podInfo {
	return podInfo{
		UUID:    pod.Plan.UUID,
		Name:    pod.Plan.Name,
		State:   pod.State.Phase,
		PID:     pod.State.Stager.PID,
		Apps:    appNames(pod),
		Created: pod.State.Created,
		Exit:    pod.State.Exit,
		Log:     pod.LogPath(),

		Networks: pod.Connections(),
	}
}

// psCommand is `ps`: one line for each pod. Pods that have exited, are dead or are damaged
// are listed until gc.
func psCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "ps",
		Short:             "list pods",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.listPods() },
	}
}

func (c *cli) listPods() error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	if !c.json {
		return c.printPods(all)
	}
	for _, pod := range all {
		var info any = describePod(pod)
		if pod.Damage != nil {
			info = damagedPod{pod.Plan.UUID, pod.Plan.Name, pod.State.Phase, oneLine(pod.Damage)}
		}
		if err := c.printJSON(info); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printPods(all []*pods.Pod) error {
	out := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "UUID\tNAME\tSTATE\tPID\tAPPS\tCREATED")
	for _, pod := range all {
		if pod.Damage != nil {
			fmt.Fprintf(out, "%s\t%s\t%s\t-\t-\t%s\n", pod.Plan.UUID[:8], dash(printable(pod.Plan.Name)), pod.State.Phase,
				printable(oneLine(pod.Damage)))
			continue
		}
		state := string(pod.State.Phase)
		if exit := pod.State.Exit; exit != nil {
			state = fmt.Sprintf("%s (%d)", state, exit.Code)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\n", pod.Plan.UUID[:8], printable(pod.Plan.Name), state, pod.State.Stager.PID,
			printable(strings.Join(appNames(pod), ",")), pod.State.Created.Local().Format(time.DateTime))
	}
	return out.Flush()
}
