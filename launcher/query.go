package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
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
	Log     string     `json:"log"` // what the stager itself wrote
}

// damagedPod is what `ps --json` shows of a damaged pod.
type damagedPod struct {
	UUID    string     `json:"uuid"`
	Name    string     `json:"name,omitempty"` // where it is known
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
	}
}

func appNames(pod *pods.Pod) []string {
	names := []string{}
	for _, app := range pod.Plan.Apps {
		names = append(names, app.Name)
	}
	return names
}

// runPS is `ps`: one line for each pod, those that have exited, lost their
// monitor or are damaged included, until gc.
func runPS(_ context.Context, c *cli, args []string) error {
	rest, err := c.parse("ps", args, nil)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{"ps: it takes no arguments"}
	}
	store, err := c.pods()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	if c.json {
		infos := []any{}
		for _, pod := range all {
			if pod.Damage != nil {
				infos = append(infos, damagedPod{pod.Plan.UUID, pod.Plan.Name, pod.State.Phase, oneLine(pod.Damage)})
				continue
			}
			infos = append(infos, describePod(pod))
		}
		return c.printJSON(infos)
	}
	return c.printPods(all)
}

func (c *cli) printPods(all []*pods.Pod) error {
	out := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "UUID\tNAME\tSTATE\tPID\tAPPS\tCREATED")
	for _, pod := range all {
		if pod.Damage != nil {
			fmt.Fprintf(out, "%s\t%s\t%s\t-\t-\t%s\n", pod.Plan.UUID[:8], dash(shown(pod.Plan.Name)), pod.State.Phase,
				shown(oneLine(pod.Damage)))
			continue
		}
		state := string(pod.State.Phase)
		if exit := pod.State.Exit; exit != nil {
			state = fmt.Sprintf("%s (%d)", state, exit.Code)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\n", pod.Plan.UUID[:8], shown(pod.Plan.Name), state, pod.State.Stager.PID,
			shown(strings.Join(appNames(pod), ",")), pod.State.Created.Local().Format(time.DateTime))
	}
	return out.Flush()
}

// findPod finds the pod that args begin with and gives the rest of them.
func (c *cli) findPod(command string, args []string) (*pods.Pod, []string, error) {
	if len(args) == 0 {
		return nil, nil, usageError{command + ": want a POD"}
	}
	store, err := c.pods()
	if err != nil {
		return nil, nil, err
	}
	pod, err := store.Find(args[0])
	return pod, args[1:], err
}

// app takes the app that is named, or the pod's only one.
func app(pod *pods.Pod, names []string) (pods.App, error) {
	if len(names) == 0 && len(pod.Plan.Apps) == 1 {
		return pod.Plan.Apps[0], nil
	}
	for _, a := range pod.Plan.Apps {
		if len(names) > 0 && a.Name == names[0] {
			return a, nil
		}
	}
	have := strings.Join(appNames(pod), ", ")
	if len(names) == 0 {
		return pods.App{}, usageError{fmt.Sprintf("pod %q has several apps, name one: %s", pod.Plan.Name, have)}
	}
	return pods.App{}, fmt.Errorf("pod %q has no app %q; it has %s", pod.Plan.Name, names[0], have)
}

// runStop is `stop`: it returns when the pods and all they had are gone.
func runStop(ctx context.Context, c *cli, args []string) error {
	refs, err := c.parse("stop", args, nil)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		return usageError{"stop: want a POD"}
	}
	store, err := c.pods()
	if err != nil {
		return err
	}
	var errs []error
	for _, ref := range refs {
		pod, err := store.Find(ref)
		if err == nil {
			err = store.Stop(ctx, pod)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// collected is what `gc --json` prints.
type collected struct {
	Pods    []string `json:"pods"`    // UUIDs
	Imports int      `json:"imports"` // unfinished imports and removals of images
}

// runGC is `gc`: it clears away pods without a monitor and unfinished imports.
func runGC(_ context.Context, c *cli, args []string) error {
	rest, err := c.parse("gc", args, nil)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usageError{"gc: it takes no arguments"}
	}
	podStore, err := c.pods()
	if err != nil {
		return err
	}
	imageStore, err := images.Open(c.config.ImagesDirectory)
	if err != nil {
		return err
	}
	done, podErr := podStore.Collect()
	imports, imageErr := imageStore.Collect()
	if err := errors.Join(podErr, imageErr); err != nil {
		return err
	}
	if c.json {
		return c.printJSON(collected{append([]string{}, done...), imports})
	}
	return printCollected(c.stdout, done, imports)
}

func printCollected(w io.Writer, done []string, imports int) error {
	for _, id := range done {
		if _, err := fmt.Fprintln(w, "pod", id); err != nil {
			return err
		}
	}
	if imports == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, imports, "unfinished imports")
	return err
}

// stdio is what a call-in is given.
func (c *cli) stdio() [3]*os.File { return [3]*os.File{c.stdin, os.Stdout, os.Stderr} }
