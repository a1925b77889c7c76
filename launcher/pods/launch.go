package pods

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/events"
)

// bringUp starts the stager and returns it when the pod is up, after ready. It is nil if it has ended, how the exit and
// the error say; the error is nil if the pod was up for a moment.
func (k *Keeper) bringUp(ctx context.Context, group *cgroups.Group, ready func() error) (*stager, Exit, error) {
	k.State.MissingCgroups = group.Missing()
	if err := errors.Join(k.save(), k.enterMonitorCgroup()); err != nil {
		return nil, Exit{}, err
	}
	s, err := k.launch(ctx, group)
	if err != nil {
		return nil, Exit{}, err
	}
	k.State.Stager = s.id
	k.record(events.Event{Action: events.Started})
	if err := k.save(); err != nil {
		exit, err := k.stop(s, group, err)
		return nil, exit, err
	}
	exit, early, err := k.awaitReady(ctx, s)
	if early {
		exit, err = k.endedEarly(exit, group, ready)
		return nil, exit, err
	}
	if err == nil {
		k.State.Phase = Running
		err = k.save()
	}
	if err == nil {
		err = ready()
	}
	if err != nil {
		exit, err = k.stop(s, group, err)
		return nil, exit, err
	}
	return s, Exit{}, nil
}

// awaitReady waits until the stager is ready. ended reports that it has ended before, with that exit.
func (k *Keeper) awaitReady(ctx context.Context, s *stager) (exit Exit, ended bool, err error) {
	select {
	case <-ctx.Done():
		return exit, false, context.Cause(ctx)
	case exit = <-s.exited:
		return exit, true, nil
	case err := <-s.ready:
		if err != nil {
			return exit, false, fmt.Errorf("wait for the stager to be ready: %w", err)
		}
	}
	// A stager that ends also closes the descriptor.
	ended, err = s.id.ended()
	if err != nil {
		return exit, false, fmt.Errorf("look whether the stager is ready: %w", err)
	}
	if ended {
		return <-s.exited, true, nil
	}
	return exit, false, context.Cause(ctx) // a start that was given up meanwhile counts as failed
}

// launch makes what the stager needs, while the networks' plugins connect the pod, and starts the stager when they
// are done.
func (k *Keeper) launch(ctx context.Context, group *cgroups.Group) (*stager, error) {
	results, err := k.connect(ctx)
	if err != nil {
		return nil, err
	}
	if !k.rooted {
		err = k.makeFiles()
	}
	if err := errors.Join(err, k.makeCgroup(group)); err != nil {
		return nil, errors.Join(err, (<-results).err)
	}
	connected := make(chan error, 1)
	go func() {
		r := <-results
		if r.err == nil {
			r.err = errors.Join(k.useNameServers(r.results), k.joinHosts())
		}
		connected <- r.err
	}()
	return k.startStager(group, connected)
}

// endedEarly handles a stager that ended before this process saw it ready. It returns
// an error with the last line that this stager has logged. The exit status of a start that fails is
// 1, and such a stager leaves no last status: otherwise the pod was up for a moment, and ready is
// called.
func (k *Keeper) endedEarly(exit Exit, group *cgroups.Group, ready func() error) (Exit, error) {
	exit = k.findOOM(exit, group)
	if exit.Signal == "" && (exit.Code != 1 || k.hasLastStatus()) {
		return exit, ready()
	}
	how := fmt.Sprintf("exit status %d", exit.Code)
	if exit.Signal != "" {
		how = exit.Signal
	}
	if exit.OOMKilled {
		how = outOfMemory
	}
	words := lastLine(k.LogPath(), k.logBegin)
	if words == "" {
		words = "nothing was logged"
	}
	err := fmt.Errorf("the stager ended before the pod was up (%s): %s", how, words)
	if k.LastLines == nil {
		return exit, err
	}
	return exit, &StartError{Err: err, Output: k.LastLines(&k.Pod)}
}

// failed completes the error, nil for none, of a launch; notExecuted is as in StartError.
func (k *Keeper) failed(notExecuted int, err error) error {
	if err == nil {
		return nil
	}
	if failed := (*StartError)(nil); errors.As(err, &failed) {
		failed.NotExecuted = notExecuted
	}
	return fmt.Errorf("launch pod %q: %w", k.Plan.Name, err)
}

// StartError is the error of a pod that did not start.
type StartError struct {
	Err    error
	Output []AppOutput // nil for nothing
	// NotExecuted is 127 if an app's program is missing, 126 if it cannot be executed, and 0 for any other error.
	NotExecuted int
}

// AppOutput is what an app has written last.
type AppOutput struct {
	App   string   `json:"app"`
	Lines []string `json:"lines"`
}

func (e *StartError) Error() string { return e.Err.Error() }

// Unwrap returns the error without the output.
func (e *StartError) Unwrap() error { return e.Err }

// maxWords is how much of the last line of a stager's log is shown, in bytes.
const maxWords = 1 << 10

// lastLine returns the last line of the file from begin on that is not blank, or the beginning of a long line.
func lastLine(path string, begin int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if _, err := file.Seek(begin, io.SeekStart); err != nil {
		return ""
	}
	in := bufio.NewReaderSize(file, maxWords)
	last := ""
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return last
		}
		text := string(bytes.TrimSpace(line))
		if more {
			text = strings.ToValidUTF8(text, "") + "…"
		}
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if text != "" {
			last = text
		}
	}
}
