package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	"github.com/spf13/cobra"
)

// appStats is what `stats --json` prints of an app. A number that the machine does not count is missing.
type appStats struct {
	Pod         string   `json:"pod"`
	UUID        string   `json:"uuid"`
	App         string   `json:"app"`
	CPUSeconds  *float64 `json:"cpuSeconds,omitempty"`
	CPUPercent  *float64 `json:"cpuPercent,omitempty"` // of one CPU, since the last object of the app, or its start
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

// statsCommand is `stats`.
func statsCommand(c *cli) *cobra.Command {
	once := false
	cmd := &cobra.Command{
		Use:   "stats [POD…]",
		Short: "show what apps use: CPU, memory, I/O and processes",
		Long: `stats shows the use of each app of the pods, or of all pods that are alive, once a second until SIGINT at a
terminal, and once elsewhere or with --no-stream. CPU is in percent of one CPU.`,
		ValidArgsFunction: c.completePods(math.MaxInt, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.stats(cmd.Context(), args, once || !isTerminal(c.stdout))
		},
	}
	cmd.Flags().BoolVar(&once, "no-stream", false, "print once")
	return cmd
}

func (c *cli) stats(ctx context.Context, refs []string, once bool) error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	last := make(map[string]sample)
	if _, err := c.measure(store, refs, last); err != nil {
		return err
	}
	for first := true; ; first = false {
		wait := time.Second
		if first {
			wait /= 5 // for a first percentage
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
		all, err := c.measure(store, refs, last)
		if err != nil {
			return err
		}
		if err := c.printStats(all, !once); err != nil || once {
			return err
		}
	}
}

// measure returns the use of each app. last has the samples of the last call, and receives the new ones.
func (c *cli) measure(store *pods.Store, refs []string, last map[string]sample) ([]appStats, error) {
	found, errs, err := findAll(store, refs)
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	all := []appStats{}
	for _, pod := range found {
		if pod.Ended() {
			continue // the cgroup of a dead pod is there until gc
		}
		group, err := cgroups.Open(pod.Plan.Cgroup)
		if err != nil {
			return nil, err
		}
		for _, app := range appNames(pod) {
			u, ok := group.Usage(filepath.Join(names.AppsCgroup, app))
			if !ok { // it has ended
				continue
			}
			all = append(all, describeUsage(pod, app, u, last))
		}
	}
	return all, nil
}

func describeUsage(pod *pods.Pod, app string, u cgroups.Usage, last map[string]sample) appStats {
	s := appStats{
		Pod: pod.Plan.Name, UUID: pod.Plan.UUID, App: app,
		Memory: known(u.Memory), MemoryLimit: known(u.MemoryLimit), Read: known(u.Read), Written: known(u.Written), PIDs: known(u.PIDs),
	}
	if u.CPU == cgroups.Unknown {
		return s
	}
	now, key := time.Now(), pod.Plan.UUID+"/"+app
	seconds, percent := u.CPU.Seconds(), 0.0
	if before, seen := last[key]; seen && now.After(before.when) {
		percent = 100 * float64(u.CPU-before.cpu) / float64(now.Sub(before.when))
	}
	last[key] = sample{now, u.CPU}
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

// printStats prints a table, or with live one in place of the last.
func (c *cli) printStats(all []appStats, live bool) error {
	if c.json {
		for _, s := range all {
			if err := c.printJSON(s); err != nil {
				return err
			}
		}
		return nil
	}
	if live {
		fmt.Fprint(c.stdout, "\x1b[H\x1b[J") // to the terminal's upper left corner, the rest erased
	}
	out := c.table("POD", "APP", "CPU", "MEMORY", "LIMIT", "READ", "WRITTEN", "PIDS")
	for _, s := range all {
		cpu, pids := "-", "-"
		if s.CPUPercent != nil {
			cpu = fmt.Sprintf("%.1f %%", *s.CPUPercent)
		}
		if s.PIDs != nil {
			pids = fmt.Sprint(*s.PIDs)
		}
		out.row(s.Pod, s.App, cpu, size(s.Memory), size(s.MemoryLimit), size(s.Read), size(s.Written), pids)
	}
	return out.flush()
}

// size is a number of bytes for a person.
func size(bytes *int64) string {
	if bytes == nil {
		return "-"
	}
	n, unit := float64(*bytes), 0
	for n >= 1000 && unit < 4 {
		n /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", *bytes)
	}
	return fmt.Sprintf("%.1f %siB", n, string(" KMGT"[unit]))
}
