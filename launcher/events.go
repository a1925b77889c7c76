package main

import (
	"context"
	"fmt"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/events"

	"github.com/spf13/cobra"
)

// eventsCommand is `events`.
func eventsCommand(c *cli) *cobra.Command {
	var o daemon.EventOptions
	cmd := &cobra.Command{
		Use:   "events",
		Short: "show what happens to pods and apps",
		Long: `events shows what happens to pods and their apps from now on, until SIGINT or the time of
--until: pods are created, started, ready when all apps have been started, exited and removed; apps are started,
exited, restarting, failed if they could not be started, healthy or unhealthy. With --since it begins with the
events since then; --stream=false shows past events only. The last 1 to 2 MiB of events are kept.`,
		Example:           "  launcher events --since 1h --stream=false --json",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.events(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Follow, "stream", true, "follow new events")
	flags.Func("since", "show events since `TIME`, RFC 3339, or for the last DURATION, such as 1h30m", timeFlag(&o.Since))
	flags.Func("until", "show events before `TIME`, or before a DURATION ago, and end then", timeFlag(&o.Until))
	return cmd
}

func (c *cli) events(ctx context.Context, o daemon.EventOptions) error {
	// A reader of the output may have stopped reading: a signal may end the process while it writes.
	letSignalsEnd()
	return c.daemon.Events(ctx, o, func(e events.Event) error {
		return c.printOne(e, eventText(e))
	})
}

// eventText is an event for a person: time, pod, app, and what has happened.
func eventText(e events.Event) string {
	subject := "pod " + printable(e.Pod)
	if e.App != "" {
		subject = "app " + printable(e.Pod) + "/" + e.App
	}
	text := fmt.Sprintf("%s  %s  %s %s", e.Time.Local().Format("2006-01-02 15:04:05.000 MST"),
		e.UUID[:min(8, len(e.UUID))], subject, e.Action)
	if e.Code != nil || e.Action == events.Exited && e.App == "" {
		text += fmt.Sprintf(" (%s)", codeText(e.Code))
	}
	if e.Reason != "" {
		text += ", " + printable(reasonText(e.Reason))
	}
	return text
}
