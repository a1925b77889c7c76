package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"kurma.io/stager/launcher/events"
)

// EventOptions says which events Events reports.
type EventOptions struct {
	Follow       bool      // wait for new events; without it only what has happened so far is reported
	Since, Until time.Time // zero for none; with neither, and Follow, only new events are reported
}

const (
	// eventsDelay is how much later than it happens an event of an app may be recorded.
	eventsDelay = time.Second
	// lookForEvents is how often Events looks for new ones.
	lookForEvents = 50 * time.Millisecond
)

// Events calls each with what happens to pods and their apps, until the time of Until has passed, or each returns an
// error.
func (d *Daemon) Events(ctx context.Context, o EventOptions, each func(events.Event) error) error {
	past := !o.Follow || !o.Since.IsZero() || !o.Until.IsZero()
	reader, err := events.NewReader(d.pods().Events(), past)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer func() { _ = reader.Close() }()
	for {
		// In this order: what happens before the end has been recorded when it is read.
		over := !o.Follow || !o.Until.IsZero() && time.Since(o.Until) > eventsDelay
		if err := o.report(reader, each); err != nil || over {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookForEvents):
		}
	}
}

// report calls each with the events that the reader has so far.
func (o EventOptions) report(reader *events.Reader, each func(events.Event) error) error {
	for {
		e, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if e.Time.Before(o.Since) || !o.Until.IsZero() && !e.Time.Before(o.Until) {
			continue
		}
		if err := each(e); err != nil {
			return err
		}
	}
}
