package pods

import (
	"bufio"
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// recordExit records once that the pod's stager has ended, and in the stager's log if a signal has ended it. A pod whose stager was not started has not exited.
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
}

const (
	// lookForReports is how often the stager's log is looked at for what apps have done.
	lookForReports = 500 * time.Millisecond
	// lookWhenReady is the same when the pod is up: the stager closes the ready descriptor before it has
	// written all of its log.
	lookWhenReady = 5 * time.Millisecond
	// reportTime is how long the record of a pod that is up waits for the reports of its apps' starts.
	reportTime = time.Second
)

// appReports records what the stager's log says of the apps. A stager of another make may log in
// another form: then there are no events of apps.
type appReports struct {
	pod *Keeper
	end chan struct{}
	off sync.WaitGroup

	mu   sync.Mutex
	log  *os.File      // guarded by mu; nil until the stager has been started
	in   *bufio.Reader // guarded by mu
	part string        // guarded by mu; the beginning of a line that is being written

	awaited map[string]bool // guarded by mu; the apps whose start has not been reported
	ready   *events.Event   // guarded by mu; that the pod is up, until it is recorded
}

// recordApps begins to record, until stop is called.
func (k *Keeper) recordApps() *appReports {
	r := &appReports{pod: k, end: make(chan struct{}), awaited: make(map[string]bool)}
	for _, app := range k.Plan.Apps {
		r.awaited[app.Name] = true
	}
	r.off.Go(func() {
		look := time.NewTicker(lookForReports)
		defer look.Stop()
		for {
			select {
			case <-look.C:
				r.catchUp()
			case <-r.end:
				return
			}
		}
	})
	return r
}

// up records that the pod is up, in the background: after its apps' starts.
func (r *appReports) up() {
	r.mu.Lock()
	r.ready = &events.Event{Action: events.Ready, Time: time.Now().UTC()}
	r.mu.Unlock()
	r.off.Go(func() {
		late := time.After(reportTime)
		for last := false; !r.catchUp() && !last; {
			select {
			case <-r.end:
				return
			case <-late:
				last = true
			case <-time.After(lookWhenReady):
			}
		}
		r.recordReady()
	})
}

// recordReady records that the pod is up, once.
func (r *appReports) recordReady() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready != nil {
		r.pod.record(*r.ready)
		r.ready = nil
	}
}

// stop records the rest of the log.
func (r *appReports) stop() {
	close(r.end)
	r.off.Wait()
	r.catchUp()
	r.recordReady()
	if r.log != nil {
		_ = r.log.Close()
	}
}

// catchUp records all that the log has so far, and returns whether each app's start has been reported.
func (r *appReports) catchUp() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log == nil {
		log, err := os.Open(r.pod.LogPath())
		if err != nil {
			return false // there is none yet
		}
		r.log, r.in = log, bufio.NewReader(log)
	}
	for {
		text, err := r.in.ReadString('\n')
		r.part += text
		if err != nil { // io.EOF: so far
			return len(r.awaited) == 0
		}
		if e, ok := appEvent(r.part); ok {
			r.pod.record(e)
			delete(r.awaited, e.App)
		}
		r.part = ""
		if len(r.awaited) == 0 && r.ready != nil {
			r.pod.record(*r.ready)
			r.ready = nil
		}
	}
}

// appEvent returns the event that a line of the stager's log reports.
func appEvent(line string) (events.Event, bool) {
	fields := ParseRecord(strings.TrimSuffix(line, "\n"))
	e := events.Event{App: fields["app"], Reason: fields["reason"]}
	switch fields["msg"] {
	case "app started":
		e.Action = events.Started
	case "app ended":
		e.Action = events.Exited
		if code, err := strconv.Atoi(fields["code"]); err == nil {
			e.Code = &code
		}
	case "app not started":
		e.Action, e.Reason = events.Failed, fields["error"]
	case "app restarts":
		e.Action = events.Restarting
	}
	var err error
	e.Time, err = time.Parse(time.RFC3339Nano, fields["time"])
	e.Time = e.Time.UTC()
	return e, err == nil && e.Action != "" && e.App != ""
}

// ParseRecord reads a line of log/slog's TextHandler, the form of the reference stager's log: KEY=VALUE, values
// with spaces quoted. It returns what it can read of any other line.
func ParseRecord(line string) map[string]string {
	fields := make(map[string]string)
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			return fields
		}
		value := ""
		if prefix, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(prefix) // QuotedPrefix has checked it
			line = rest[len(prefix):]
		} else {
			value, line, _ = strings.Cut(rest, " ")
		}
		fields[key] = value
	}
	return fields
}
