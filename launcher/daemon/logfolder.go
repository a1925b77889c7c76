package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/launcher/pods"
)

// errNoLog says that the stager keeps no log where the daemon can read it.
var errNoLog = errors.New("the stager keeps no log here")

// ErrNoLogs says that no app of a pod that has ended has a log.
var ErrNoLogs = errors.New("has ended and has no logs")

// lookForLog is how often openLog looks for the log of a pod that starts.
const lookForLog = 5 * time.Millisecond

// openLog opens the folder with the logs of the pod's apps. With follow it waits until the
// app has a log, or the pod has ended. errNoLog means that only the stager's own call-in, if
// anything, has the log.
func openLog(ctx context.Context, pod *pods.Pod, app string, follow bool) (*os.File, error) {
	for {
		if err := pod.Refresh(); err != nil {
			return nil, err
		}
		logs, err := pod.AppLogs()
		if err == nil && (hasLog(logs, app) || pod.Ended() && hasAnyLog(logs, pod)) {
			return logs, nil
		}
		if err == nil {
			_ = logs.Close()
			err = fs.ErrNotExist
		}
		if pod.Ended() && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("pod %q %w", pod.Plan.Name, ErrNoLogs)
		}
		if pod.Ended() {
			return nil, err
		}
		if !follow || pod.State.Phase != pods.Starting || pod.Plan.LogDir == "" {
			return nil, errNoLog
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lookForLog):
		}
	}
}

func hasAnyLog(logs *os.File, pod *pods.Pod) bool {
	return slices.ContainsFunc(AppNames(pod), func(app string) bool { return hasLog(logs, app) })
}

// hasLog reports whether the app has a log file. From then on a follower of the log knows
// whether it has a writer.
func hasLog(logs *os.File, app string) bool {
	entries, err := os.ReadDir(filepath.Join(logPath(logs), app))
	return err == nil && slices.ContainsFunc(entries,
		func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), ".log") })
}

// logPath is a path of the open folder that stays the same when the folder is moved.
func logPath(logs *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", logs.Fd()) }
