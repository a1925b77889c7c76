package daemon

import (
	"path/filepath"
	"time"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// AppUsage is the use of the machine by an app. A number that the machine does not count is missing.
type AppUsage struct {
	Pod         string   `json:"pod"`
	UUID        string   `json:"uuid"`
	App         string   `json:"app"`
	CPUSeconds  *float64 `json:"cpuSeconds,omitempty"`
	CPUPercent  *float64 `json:"cpuPercent,omitempty"` // of one CPU, since the last measurement, or 0
	Memory      *int64   `json:"memory,omitempty"`     // bytes
	MemoryLimit *int64   `json:"memoryLimit,omitempty"`
	Read        *int64   `json:"read,omitempty"` // bytes of block devices
	Written     *int64   `json:"written,omitempty"`
	PIDs        *int64   `json:"pids,omitempty"`
}

// sample is what an app had used at a time.
type sample struct {
	when time.Time
	cpu  time.Duration
}

// Meter measures what apps use. Its methods must not run at the same time.
type Meter struct {
	last map[string]sample // by UUID and app
}

// Measure returns the use of each app of the pods that runs. CPUPercent is that since the last call.
func (m *Meter) Measure(all []*pods.Pod) ([]AppUsage, error) {
	if m.last == nil {
		m.last = make(map[string]sample)
	}
	used := []AppUsage{}
	for _, pod := range all {
		if pod.Ended() {
			continue // the cgroup of a dead pod is there until gc
		}
		group, err := cgroups.Open(pod.Plan.Cgroup)
		if err != nil {
			return nil, err
		}
		for _, app := range AppNames(pod) {
			if u, ok := group.Usage(filepath.Join(names.AppsCgroup, app)); ok { // else it has ended
				used = append(used, m.describe(pod, app, u))
			}
		}
	}
	return used, nil
}

func (m *Meter) describe(pod *pods.Pod, app string, u cgroups.Usage) AppUsage {
	s := AppUsage{
		Pod: pod.Plan.Name, UUID: pod.Plan.UUID, App: app,
		Memory: known(u.Memory), MemoryLimit: known(u.MemoryLimit), Read: known(u.Read), Written: known(u.Written),
		PIDs: known(u.PIDs),
	}
	if u.CPU == cgroups.Unknown {
		return s
	}
	now, key := time.Now(), pod.Plan.UUID+"/"+app
	seconds, percent := u.CPU.Seconds(), 0.0
	if before, seen := m.last[key]; seen && now.After(before.when) {
		percent = 100 * float64(u.CPU-before.cpu) / float64(now.Sub(before.when))
	}
	m.last[key] = sample{now, u.CPU}
	s.CPUSeconds, s.CPUPercent = &seconds, &percent
	return s
}

// known returns nil for a number that is not known.
func known(n int64) *int64 {
	if n == cgroups.Unknown {
		return nil
	}
	return &n
}
