package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"time"

	"kurma.io/stager/launcher/events"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// eventsOptions is the command line of `events`.
type eventsOptions struct {
	stream       bool
	since, until time.Time // zero for none
}

// eventsCommand is `events`.
func eventsCommand(c *cli) *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events",
		Short: "show what happens to pods and apps",
		Long: `events shows what happens to pods and their apps from now on, until SIGINT or the time of --until: pods are created,
started, ready when all apps have been started, exited and removed; apps are started, exited, restarting, or failed if they could
not be started. With --since it begins with what has happened since then; --stream=false shows only what has happened so far.
The last 1 to 2 MiB of events are kept.`,
		Example:           "  launcher events --since 1h --stream=false --json",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.events(cmd.Context(), o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.stream, "stream", true, "follow new events")
	flags.Func("since", "show events since `TIME`, RFC 3339, or for the last DURATION, such as 1h30m", func(text string) (err error) {
		o.since, err = parseTime(text, time.Now())
		return err
	})
	flags.Func("until", "show events before `TIME`, or before a DURATION ago, and end then", func(text string) (err error) {
		o.until, err = parseTime(text, time.Now())
		return err
	})
	return cmd
}

func (c *cli) events(ctx context.Context, o eventsOptions) error {
	store, err := c.pods()
	if err != nil {
		return err
	}
	// What has happened is wanted unless only the future is.
	past := !o.stream || !o.since.IsZero() || !o.until.IsZero()
	reader, err := events.NewReader(store.Events(), past)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = reader.Close() }()
	// A reader of the output may have stopped reading: a signal may end the process while it writes.
	signal.Reset(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	for {
		// In this order: what happens before the end has been recorded when it is read.
		over := !o.stream || !o.until.IsZero() && time.Since(o.until) > eventsDelay
		if err := c.printEvents(reader, o); err != nil || over {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookForLines):
		}
	}
}

// eventsDelay is how much later than it happens an event of an app may be recorded.
const eventsDelay = time.Second

// printEvents prints the events that the reader has so far.
func (c *cli) printEvents(reader *events.Reader, o eventsOptions) error {
	for {
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if e.Time.Before(o.since) || !o.until.IsZero() && !e.Time.Before(o.until) {
			continue
		}
		if c.json {
			err = c.printJSON(e)
		} else {
			err = c.line(eventText(e))
		}
		if err != nil {
			return err
		}
	}
}

// eventText is an event for a person: time, pod, app, and what has happened.
func eventText(e events.Event) string {
	subject := "pod " + printable(e.Pod)
	if e.App != "" {
		subject = "app " + printable(e.Pod) + "/" + e.App
	}
	text := fmt.Sprintf("%s  %s  %s %s", e.Time.Local().Format("2006-01-02 15:04:05.000 MST"), e.UUID[:min(8, len(e.UUID))], subject, e.Action)
	if e.Code != nil || e.Action == events.Exited && e.App == "" {
		text += fmt.Sprintf(" (%s)", codeText(e.Code))
	}
	if e.Reason != "" {
		text += ", " + printable(e.Reason)
	}
	return text
}
