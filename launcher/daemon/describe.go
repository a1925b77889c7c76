package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
)

// PodInfo describes a pod.
type PodInfo struct {
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
	Reason  string     `json:"reason,omitempty"` // "oom-killed" if that has ended an app, or its run before the latest
	// Restarts counts the runs of all apps after the first.
	Restarts int `json:"restarts,omitempty"`
	// Health is the worst of the pod's apps that run, "" if none has a health check.
	Health pods.Health `json:"health,omitempty"`
	// Networks are the networks that the pod is connected to, and its addresses there.
	Networks []pods.Connection `json:"networks,omitempty"`
	// Labels are the userLabels of the pod's manifest.
	Labels map[string]string `json:"labels,omitempty"`
	// Ports are the ports of the host that lead to the pod while it is alive.
	Ports []networks.PortMapping `json:"ports,omitempty"`
	// DisconnectError is why a pod that has ended is still connected to networks.
	DisconnectError string `json:"disconnectError,omitempty"`
	Log             string `json:"log"` // file of the stager's own output

	// Damage is why the pod's record cannot be read; nothing else but the UUID, the state and perhaps the name is set
	// then.
	Damage error `json:"-"`
}

// Describe describes pods, and asks the stagers of live pods for their apps, several at once.
func (d *Daemon) Describe(ctx context.Context, all ...*pods.Pod) []PodInfo {
	infos := make([]PodInfo, len(all))
	slots := make(chan struct{}, 8)
	var describers sync.WaitGroup
	for i, pod := range all {
		slots <- struct{}{}
		describers.Go(func() {
			infos[i] = d.describe(ctx, pod)
			<-slots
		})
	}
	describers.Wait()
	return infos
}

// describe asks the stager of a live pod for its apps.
func (d *Daemon) describe(ctx context.Context, pod *pods.Pod) PodInfo {
	if pod.Damage != nil {
		return PodInfo{UUID: pod.Plan.UUID, Name: pod.Plan.Name, State: pod.State.Phase, Damage: pod.Damage}
	}
	info := describeRecord(pod)
	if pod.Ended() {
		last, _ := pod.LastStatus() // the states that are known
		info.countApps(last)
		info.Code, info.Reason = pod.Outcome()
		return info
	}
	info.Ports = pod.Plan.Ports
	if apps, ok := d.askApps(ctx, pod); ok {
		info.countApps(apps)
	}
	return info
}

// describeRecord returns what the pod's record says.
func describeRecord(pod *pods.Pod) PodInfo {
	return PodInfo{
		UUID:    pod.Plan.UUID,
		Name:    pod.Plan.Name,
		State:   pod.State.Phase,
		PID:     pod.State.Stager.PID,
		Apps:    AppNames(pod),
		Labels:  pod.Plan.Labels,
		Created: pod.State.Created,
		Ended:   pod.State.Ended,
		Exit:    pod.State.Exit,
		Log:     pod.LogPath(),

		Networks:        pod.Connections(),
		DisconnectError: pod.State.DisconnectError,
	}
}

// countApps sets what the apps' states say about the pod.
func (i *PodInfo) countApps(apps map[string]pods.AppStatus) {
	i.Running = new(int)
	for _, a := range apps {
		if a.PID != 0 {
			*i.Running++
		}
		i.Restarts += a.Restarts
		i.Health = worse(i.Health, a.Health)
		if a.Reason == pods.OOMKilled || a.LastReason == pods.OOMKilled {
			i.Reason = pods.OOMKilled
		}
	}
}

// worse returns the worse of two.
func worse(a, b pods.Health) pods.Health {
	order := []pods.Health{"", pods.Healthy, pods.HealthStarting, pods.Unhealthy}
	if slices.Index(order, a) < slices.Index(order, b) {
		return b
	}
	return a
}

// AnswerTime is how long the description of a pod waits for the answer of its stager.
const AnswerTime = 2 * time.Second

// askApps returns the states of a live pod's apps, and false if the stager does not answer in
// time.
func (d *Daemon) askApps(ctx context.Context, pod *pods.Pod) (map[string]pods.AppStatus, bool) {
	if pod.State.Phase != pods.Running && pod.State.Phase != pods.Starting {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	data, err := ask(ctx, pod, "status")
	if err != nil {
		return nil, false
	}
	status, err := readStatus(pod, data)
	return status.Apps, err == nil
}
