package daemon

import (
	"path/filepath"
	"time"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/metrics"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// Metrics writes what the apps of all live pods use, and what their pods' interfaces have carried.
func (d *Daemon) Metrics(out *metrics.Text) error {
	live, _, err := d.FindPods(nil) // a damaged pod has no numbers
	if err != nil {
		return err
	}
	var all []metrics.Readings
	for _, pod := range live {
		group, err := cgroups.Open(pod.Plan.Cgroup)
		if err != nil {
			return err
		}
		for _, app := range AppNames(pod) {
			if r, ok := appReadings(pod, group, app); ok { // else it has ended
				all = append(all, r)
			}
		}
		if r, ok := podReadings(pod, group); ok {
			all = append(all, r)
		}
	}
	out.Readings(all)
	return nil
}

func appReadings(pod *pods.Pod, group *cgroups.Group, app string) (r metrics.Readings, ok bool) {
	below := filepath.Join(names.AppsCgroup, app)
	used, ok := group.Usage(below)
	if !ok {
		return r, false
	}
	r.Labels = metrics.Labels{
		Container: app, ID: "/" + filepath.Join(group.Path, below), Image: pod.Plan.Image,
		Name: pod.Plan.Name + "/" + app, Pod: pod.Plan.Name,
	}
	quota, period := metrics.FilesOf(group, below).Quota()
	r.AddGroup(group, below, quota > 0)
	r.Add("container_start_time_seconds", float64(pod.State.Created.Unix()))
	r.Add("container_last_seen", float64(time.Now().Unix()))
	r.Add("container_spec_memory_limit_bytes", float64(max(0, used.MemoryLimit)))
	if quota > 0 {
		r.Add("container_spec_cpu_quota", float64(quota))
		r.Add("container_spec_cpu_period", float64(period))
	}
	return r, true
}

// podReadings are those of a pod's network, unless it is the host's.
func podReadings(pod *pods.Pod, group *cgroups.Group) (r metrics.Readings, ok bool) {
	if pod.Plan.HostNetwork {
		return r, false
	}
	interfaces, err := pod.Interfaces()
	if err != nil {
		return r, false // the pod has ended meanwhile
	}
	r.Labels = metrics.Labels{ID: "/" + group.Path, Name: pod.Plan.Name, Pod: pod.Plan.Name}
	r.AddInterfaces(metrics.ParseInterfaces(interfaces, ""))
	return r, true
}
