package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
)

// AppLogs opens the folder with the logs of the pod's apps, a folder for each app in the stager's own format. It is in
// the pod's folder from the pod's start to its deletion, and the stager has it mounted at Plan.LogDir. The error is
// fs.ErrNotExist if the root of the stager has not been made, or the pod is deleted, or the stager's image does not say
// where the logs are, which the error of a pod that has ended says. The caller closes the folder.
func (p *Pod) AppLogs() (*os.File, error) {
	logs, err := os.Open(p.logsPath())
	if errors.Is(err, fs.ErrNotExist) && p.Plan.LogDir == "" && p.State.Phase == Exited {
		return nil, fmt.Errorf("logs of pod %q were not kept: the stager image has no annotation %q", p.Plan.Name,
			names.LogDirAnnotation)
	}
	return logs, err
}

// AppStatus is the state of an app, as the stager's call-in status has it, and the last states of an ended pod's apps.
type AppStatus struct {
	PID    int    `json:"pid,omitempty"` // of the main process, on the host; 0 for an app that does not run
	Exited bool   `json:"exited"`
	Ending bool   `json:"ending,omitempty"`
	Code   *int   `json:"exitCode,omitempty"` // nil if it is not known, see Killed
	Reason string `json:"exitReason,omitempty"`

	Restarting bool   `json:"restarting,omitempty"` // it has ended, and will be started again
	Restarts   int    `json:"restarts,omitempty"`   // runs after the first
	LastCode   *int   `json:"lastExitCode,omitempty"`
	LastReason string `json:"lastExitReason,omitempty"` // of the run before the latest

	Health         Health `json:"health,omitempty"`         // "" without a health check
	HealthFailures int    `json:"healthFailures,omitempty"` // in a row
	HealthReason   string `json:"healthReason,omitempty"`   // why the latest check has failed
}

// Health is what the health checks of an app that runs say.
type Health string

// The health of an app.
const (
	HealthStarting Health = "starting" // no check has succeeded yet
	Healthy        Health = "healthy"
	Unhealthy      Health = "unhealthy"
)

// LastStatus returns the last states of an ended pod's apps, by app name. An app has no Code if it was killed with
// its stager, or if the stager could not write the states, as on a full disk. The error is why the stager's document
// of the states cannot be read; the states come with it also.
func (p *Pod) LastStatus() (map[string]AppStatus, error) {
	var kept map[string]AppStatus // nil also after null, which is JSON
	logs, err := p.AppLogs()
	if err == nil {
		err = jsonfile.Read(fmt.Sprintf("/proc/self/fd/%d/%s", logs.Fd(), names.LastStatus), &kept)
		_ = logs.Close()
	}
	all := make(map[string]AppStatus)
	for _, app := range p.Plan.Apps {
		state := kept[app.Name]
		state.Exited = true
		all[app.Name] = state
	}
	return all, err
}

// Killed reports whether a signal has ended the stager of a pod that has ended, and so the apps that
// had not ended before.
func (p *Pod) Killed() bool { return p.exit().Signal != "" }

// StagerFailed says, for a pod that has ended, that its end was its stager's and not its apps': a signal has ended
// the stager, or it has failed and not written the apps' last states, although its image says where, or no app has its
// exit status. It is "" for any other end, and for a pod that is deleted with the states.
func (p *Pod) StagerFailed() string {
	switch exit := p.exit(); {
	case exit.OOMKilled:
		return "the stager was ended: " + outOfMemory
	case exit.Signal != "":
		return "the stager was ended by " + exit.Signal
	case exit.Code != 0 && p.Plan.LogDir != "" && !p.hasLastStatus() && exists(p.Dir):
		return fmt.Sprintf("the stager ended with exit status %d before it had written the apps' last states", exit.Code)
	case exit.Code != 0 && p.hasLastStatus() && !p.hasApp(exit.Code):
		return fmt.Sprintf("the stager ended with exit status %d after its apps", exit.Code)
	}
	return ""
}

// hasApp tells whether an app's last state has the exit code.
func (p *Pod) hasApp(code int) bool {
	states, _ := p.LastStatus() // the states that are known
	for _, app := range states {
		if app.Code != nil && *app.Code == code {
			return true
		}
	}
	return false
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// logSignal adds to the stager's log that a signal has ended the stager, which could not say so itself.
func (k *Keeper) logSignal(exit Exit) {
	how := []any{"signal", exit.Signal}
	if exit.OOMKilled {
		how = append(how, "reason", OOMKilled)
	}
	k.logLine(slog.LevelError, "the stager was ended", how...)
}

// logLine adds a line to the stager's log. A log that cannot be written stays as it is.
func (k *Keeper) logLine(level slog.Level, message string, attributes ...any) {
	log, err := os.OpenFile(k.LogPath(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer log.Close()
	slog.New(slog.NewTextHandler(log, nil)).Log(context.Background(), level, message, attributes...)
}

// exit is how the stager of a pod that has ended has ended, also if nobody has recorded it.
func (p *Pod) exit() Exit {
	if p.State.Exit == nil {
		return p.unseen()
	}
	return *p.State.Exit
}

// OOMKilled is the reason of an app, or a stager, that the kernel has killed because memory was used up.
const OOMKilled = "oom-killed"

// Outcome returns the exit code of a pod that has ended: the stager's, or if that is 0 the
// first in the pod's order that is not 0. It is nil, not known, if the stager's is 0 and the stager has not
// written the apps', although its image says where. The reason is OOMKilled if an app has it, or the stager.
func (p *Pod) Outcome() (code *int, reason string) {
	first := p.exit().Code
	last, err := p.LastStatus()
	for _, app := range p.Plan.Apps {
		a := last[app.Name]
		if first == 0 && a.Code != nil {
			first = *a.Code
		}
		if a.Reason == OOMKilled {
			reason = OOMKilled
		}
	}
	if p.exit().OOMKilled {
		reason = OOMKilled
	}
	if first == 0 && err != nil && p.Plan.LogDir != "" {
		return nil, reason
	}
	return &first, reason
}

// hasLastStatus reports whether the stager has written the apps' last states.
func (p *Pod) hasLastStatus() bool {
	_, ok := p.lastStatusTime()
	return ok
}

// lastStatusTime returns when the stager has written the apps' last states; false if it has not.
func (p *Pod) lastStatusTime() (time.Time, bool) {
	logs, err := p.AppLogs()
	if err != nil {
		return time.Time{}, false
	}
	defer logs.Close()
	info, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/%s", logs.Fd(), names.LastStatus))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime().UTC(), true
}

// unseen is the Exit of a stager whose parent has ended before: it was killed unless it has written the apps' last
// states, which have the exit code then.
func (p *Pod) unseen() Exit {
	if p.hasLastStatus() {
		return Exit{}
	}
	return killed()
}

// Refresh reads the pod's state again. The error of a pod that has been deleted is ErrNotFound.
func (p *Pod) Refresh() error {
	err := p.refresh()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w any more: %q", ErrNotFound, p.Plan.Name)
	}
	return err
}

// Ended reports whether the pod has ended.
func (p *Pod) Ended() bool { return !p.alive() }

// Locked reports whether a process works on the pod's folder: its monitor or attendant, or one that deletes it.
func (p *Pod) Locked() bool { return p.isHeld(lockFile) }

// lookAgain is how often the pod's state is read while it is waited for.
const lookAgain = 5 * time.Millisecond

// AwaitEnd waits until the pod has ended, and returns its last state in p, or an error that wraps
// ErrNotFound if the pod is deleted at its end.
func (p *Pod) AwaitEnd(ctx context.Context) error {
	for {
		p.awaitStager(ctx)
		if err := p.Refresh(); err != nil || p.Ended() {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookAgain):
		}
	}
}

// Ends reports whether the pod's stager ends within that time, or has ended. A call-in that
// fails may have met a pod that is just ending.
func (p *Pod) Ends(ctx context.Context, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := p.Refresh()
	return errors.Is(err, ErrNotFound) || err == nil && p.Ended() || p.awaitStager(ctx)
}

// awaitStager waits until the stager has ended, or ctx ends, and reports whether it has ended. It does not wait for a
// stager that has not been started, or that it cannot look at.
func (p *Pod) awaitStager(ctx context.Context) bool {
	fd, err := p.State.Stager.open()
	if err != nil {
		return errors.Is(err, errGone) && p.State.Stager.PID != 0
	}
	defer func() { _ = unix.Close(fd) }()
	const milliseconds = 100
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, milliseconds)
		if n > 0 {
			return true
		}
		if err != nil && err != unix.EINTR {
			return false
		}
	}
	return false
}
