package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

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
	var meter daemon.Meter
	if _, err := c.measure(&meter, refs); err != nil {
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
		all, err := c.measure(&meter, refs)
		if err != nil {
			return err
		}
		if err := c.printStats(all, !once); err != nil || once {
			return err
		}
	}
}

// measure measures the named pods, or all that are alive.
func (c *cli) measure(meter *daemon.Meter, refs []string) ([]daemon.AppUsage, error) {
	found, errs, err := c.daemon.FindPods(refs)
	if err != nil {
		return nil, err
	}
	if len(refs) > 0 && len(errs) > 0 {
		return nil, errs[0]
	}
	return meter.Measure(found)
}

// printStats prints a table, or with live one in place of the last.
func (c *cli) printStats(all []daemon.AppUsage, live bool) error {
	if c.json {
		return printAll(c, all)
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
