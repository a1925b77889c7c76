package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"
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
	Running *int       `json:"running,omitempty"` // how many of the apps run; nil if the stager did not answer
	Created time.Time  `json:"created"`
	Ended   time.Time  `json:"ended,omitzero"`
	Exit    *pods.Exit `json:"exit,omitempty"`   // the stager's
	Code    *int       `json:"code,omitempty"`   // of a pod that has ended: see pods.Pod.Outcome; nil if it is not known
	Reason  string     `json:"reason,omitempty"` // "oom-killed" if that has ended an app
	// Networks are the networks that the pod is connected to, and its addresses there.
	Networks []pods.Connection `json:"networks,omitempty"`
	// DisconnectError is why a pod that has ended is still connected to networks.
	DisconnectError string `json:"disconnectError,omitempty"`
	Log             string `json:"log"` // file of the stager's own output
}

// damagedPod is what `ps --json` shows of a damaged pod.
type damagedPod struct {
	UUID    string     `json:"uuid"`
	Name    string     `json:"name,omitempty"` // if it is known
	State   pods.Phase `json:"state"`
	Damaged string     `json:"damaged"` // why
}

// describePod asks the stager of a live pod for its apps.
func (c *cli) describePod(pod *pods.Pod) podInfo {
	info := podInfo{
		UUID:    pod.Plan.UUID,
		Name:    pod.Plan.Name,
		State:   pod.State.Phase,
		PID:     pod.State.Stager.PID,
		Apps:    appNames(pod),
		Created: pod.State.Created,
		Ended:   pod.State.Ended,
		Exit:    pod.State.Exit,
		Log:     pod.LogPath(),

		Networks:        pod.Connections(),
		DisconnectError: pod.State.DisconnectError,
	}
	if pod.Ended() {
		info.Running = new(int)
		info.Code, info.Reason = pod.Outcome()
		return info
	}
	if apps, ok := c.askApps(pod); ok {
		info.Running = new(int)
		for _, a := range apps {
			if a.PID != 0 {
				*info.Running++
			}
			if a.Reason == pods.OOMKilled {
				info.Reason = pods.OOMKilled
			}
		}
	}
	return info
}

// answerTime is how long ps waits for the answer of a stager.
const answerTime = 2 * time.Second

// askApps returns the states of a live pod's apps, and false if the stager does not answer in
// time.
func (c *cli) askApps(pod *pods.Pod) (map[string]appStatus, bool) {
	if pod.State.Phase != pods.Running && pod.State.Phase != pods.Starting {
		return nil, false
	}
	answer := make(chan map[string]appStatus, 1)
	go func() {
		data, err := c.capture(pod, io.Discard, "status")
		var apps map[string]appStatus
		if err == nil {
			err = json.Unmarshal(data, &apps)
		}
		if err != nil {
			apps = nil
		}
		answer <- apps
	}()
	select {
	case apps := <-answer:
		return apps, apps != nil
	case <-time.After(answerTime): // the process that asks ends with this one
		return nil, false
	}
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

func (c *cli) listPods(_ context.Context, o psOptions) error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	listed, err := store.List()
	if err != nil {
		return err
	}
	var all []*pods.Pod
	for _, pod := range listed {
		if o.all || pod.State.Phase != pods.Exited {
			all = append(all, pod)
		}
	}
	if o.quiet && !c.json {
		for _, pod := range all {
			if _, err := fmt.Fprintln(c.stdout, pod.Plan.UUID); err != nil {
				return err
			}
		}
		return nil
	}
	infos := c.describePods(all)
	if !c.json {
		return c.printPods(all, infos)
	}
	for i, pod := range all {
		var info any = infos[i]
		if pod.Damage != nil {
			info = damagedPod{pod.Plan.UUID, pod.Plan.Name, pod.State.Phase, oneLine(pod.Damage)}
		}
		if err := c.printJSON(info); err != nil {
			return err
		}
	}
	return nil
}

// describePods asks several stagers at once.
func (c *cli) describePods(all []*pods.Pod) []podInfo {
	infos := make([]podInfo, len(all))
	slots := make(chan struct{}, 8)
	var asking sync.WaitGroup
	for i, pod := range all {
		if pod.Damage != nil {
			continue
		}
		slots <- struct{}{}
		asking.Go(func() {
			infos[i] = c.describePod(pod)
			<-slots
		})
	}
	asking.Wait()
	return infos
}

func (c *cli) printPods(all []*pods.Pod, infos []podInfo) error {
	out := c.table("UUID", "NAME", "STATE", "PID", "APPS", "CREATED ("+zone()+")")
	for i, pod := range all {
		if pod.Damage != nil {
			out.row(pod.Plan.UUID[:8], pod.Plan.Name, pod.State.Phase, "-", "-", oneLine(pod.Damage))
			continue
		}
		info := infos[i]
		out.row(info.UUID[:8], info.Name, stateText(info), pidText(info), appsText(info), localTime(info.Created))
	}
	return out.flush()
}

func stateText(info podInfo) string {
	text := string(info.State)
	if info.State == pods.Exited {
		text = fmt.Sprintf("%s (%s)", text, codeText(info.Code))
	}
	if info.Reason != "" {
		text += ", " + info.Reason
	}
	if info.DisconnectError != "" {
		text += ", still connected"
	}
	return text
}

func pidText(info podInfo) string {
	if info.State == pods.Exited || info.State == pods.Dead {
		return "-"
	}
	return strconv.Itoa(info.PID)
}

// appsText is how many of the pod's apps run, of how many.
func appsText(info podInfo) string {
	running := "?"
	if info.Running != nil {
		running = strconv.Itoa(*info.Running)
	}
	return fmt.Sprintf("%s/%d", running, len(info.Apps))
}
