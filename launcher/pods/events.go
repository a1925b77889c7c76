package pods

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	"kurma.io/stager/launcher/events"
)

// eventsFile is beside the pods' folders.
const eventsFile = ".events"

// Events returns the file of what happens to the store's pods, for package events.
func (s *Store) Events() string { return filepath.Join(s.dir, eventsFile) }

// record records an event of the pod. The pod does not depend on it: on a full disk, say, the event
// is left out.
func (p *Pod) record(e events.Event) {
	e.UUID, e.Pod = p.Plan.UUID, p.Plan.Name
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	_ = events.Append(filepath.Join(filepath.Dir(p.Dir), eventsFile), e)
}

// recordExit records once that the pod's stager has ended, and in the stager's log if a signal has ended it. It saves
// the exit: whoever goes on with the take-down of a monitor that was killed does not know it. A pod without a stager
// that was started has not exited.
func (k *Keeper) recordExit(exit Exit) {
	if k.State.Stager.PID == 0 || k.State.Exit != nil {
		return
	}
	k.State.Exit = &exit
	if exit.Signal != "" {
		k.logSignal(exit)
	}
	code, reason := k.Outcome()
	k.record(events.Event{Action: events.Exited, Code: code, Reason: cmp.Or(reason, exit.Signal)})
	_ = k.save() // the pod is taken down in any case
}

// lookForChanges is how often the stager's file is looked at for what apps have done.
const lookForChanges = 500 * time.Millisecond

// appEvents records what the stager reports of the apps, in the file that its image names. A stager without such a
// file has no events of apps.
type appEvents struct {
	pod   *Pod
	stop  chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	lines *events.Lines // guarded by mu; nil until the stager's root has been made

	notExecuted int // guarded by mu; of the first app with one
}

// recordApps begins to record, until finish is called. Meanwhile it reads nothing of the keeper.
func (k *Keeper) recordApps() *appEvents {
	e := &appEvents{pod: &Pod{Dir: k.Dir, Plan: k.Plan}, stop: make(chan struct{})}
	if k.Plan.EventsFile == "" {
		return e
	}
	e.ended.Go(func() {
		look := time.NewTicker(lookForChanges)
		defer look.Stop()
		for {
			select {
			case <-look.C:
				e.catchUp()
			case <-e.stop:
				return
			}
		}
	})
	return e
}

// up records that the pod is up, after its apps' starts, which the stager has reported before.
func (e *appEvents) up() {
	e.catchUp()
	e.pod.record(events.Event{Action: events.Ready})
}

// finish records the rest, and returns what StartError has as NotExecuted.
func (e *appEvents) finish() (notExecuted int) {
	close(e.stop)
	e.ended.Wait()
	e.catchUp()
	if e.lines != nil {
		_ = e.lines.Close()
	}
	return e.notExecuted
}

// catchUp records all that the stager has reported so far.
func (e *appEvents) catchUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lines == nil && !e.open() {
		return
	}
	for {
		line, err := e.lines.Next()
		if err != nil { // io.EOF: so far
			return
		}
		c, ok := readChange(line)
		if !ok {
			continue
		}
		if event, ok := c.event(); ok {
			e.pod.record(event)
		}
		if e.notExecuted == 0 && (c.NotExecuted == 126 || c.NotExecuted == 127) {
			e.notExecuted = c.NotExecuted
		}
	}
}

// open opens the stager's file, which need not exist yet.
func (e *appEvents) open() bool {
	if e.pod.Plan.EventsFile == "" {
		return false
	}
	folder, name := e.pod.placeOf(e.pod.Plan.EventsFile)
	root, err := os.OpenRoot(folder)
	if err != nil {
		return false
	}
	lines, err := events.NewLines(root, name, true)
	if err != nil {
		_ = lines.Close()
		return false
	}
	e.lines = lines
	return true
}

// change is a line of the stager's file.
type change struct {
	Time   time.Time `json:"time"`
	App    string    `json:"app"`
	State  string    `json:"state"`
	Health string    `json:"health"`   // of a line without a state
	Code   *int      `json:"exitCode"` // of "ending"; nil for an app that was not started
	Reason string    `json:"reason"`
	// NotExecuted is 127 if the app's program is missing, and 126 if it cannot be executed.
	NotExecuted int `json:"notExecuted"`
}

// readChange reads a line of the stager's file; false for one that reports no change.
func readChange(line []byte) (c change, ok bool) {
	err := json.Unmarshal(line, &c)
	return c, err == nil && c.App != "" && !c.Time.IsZero()
}

// event returns the event that the change is; false for a state that is none.
func (c change) event() (events.Event, bool) {
	e := events.Event{Time: c.Time.UTC(), App: c.App, Code: c.Code, Reason: c.Reason}
	switch {
	case c.State == "running":
		e.Action = events.Started
	case c.State == "ending" && c.Code != nil:
		e.Action = events.Exited
	case c.State == "ending":
		e.Action = events.Failed
	case c.State == "restarting":
		e.Action = events.Restarting
	case c.State == "" && c.Health == "healthy":
		e.Action = events.Healthy
	case c.State == "" && c.Health == "unhealthy":
		e.Action = events.Unhealthy
	}
	return e, e.Action != ""
}
