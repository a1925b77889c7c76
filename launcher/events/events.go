// Package events keeps the events of pods in a file, for readers at once or later.
//
// The file has one Event a line, as JSON, in the order of recording by the processes that make the changes,
// without a daemon between. At maxSize the file becomes FILE.old, and the previous FILE.old
// is deleted. A writer holds the file's lock while it appends a line; readers take no lock.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"kurma.io/stager/internal/filelock"

	"golang.org/x/sys/unix"
)

// Action is what has happened.
type Action string

// The actions of pods and apps.
const (
	Created    Action = "created"    // of a pod: its folder and plan have been made
	Started    Action = "started"    // the stager, or an app's main process
	Ready      Action = "ready"      // of a pod: all apps have been started
	Exited     Action = "exited"     // with a Code
	Removed    Action = "removed"    // of a pod: nothing is left of it
	Failed     Action = "failed"     // of an app: it was not started, Reason says why
	Restarting Action = "restarting" // of an app that has exited: it is going to be started again
	Healthy    Action = "healthy"    // of an app: a health check has succeeded, the first or after it was unhealthy
	Unhealthy  Action = "unhealthy"  // of an app: health checks in a row have failed, Reason says why the last one
)

// Event is one thing that has happened to a pod, or with App to one of its apps.
type Event struct {
	Time   time.Time `json:"time"`
	Action Action    `json:"action"`
	UUID   string    `json:"uuid"` // the pod's
	Pod    string    `json:"pod"`  // its name
	App    string    `json:"app,omitempty"`
	Code   *int      `json:"code,omitempty"`   // of Exited
	Reason string    `json:"reason,omitempty"` // of Exited, Failed and Unhealthy, such as "oom-killed"
}

const (
	// maxSize is how long the file may become, some 5,000 events.
	maxSize   = 1 << 20
	oldSuffix = ".old"
)

// Append records an event in the file, which it makes if it is missing. Several processes may call
// it at once. After an error nothing of the event is in the file.
func Append(path string, e Event) error {
	line, err := json.Marshal(e)
	if err == nil {
		err = appendLine(path, append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record event: %w", err)
	}
	return nil
}

func appendLine(path string, line []byte) error {
	for {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		again, err := appendLocked(file, path, line)
		if err := errors.Join(err, file.Close()); err != nil || !again {
			return err
		}
	}
}

// appendLocked returns true if the line belongs into another file, which has taken the path
// of this one.
func appendLocked(file *os.File, path string, line []byte) (again bool, err error) {
	if err := filelock.Take(file, unix.LOCK_EX); err != nil {
		return false, err
	}
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(now, info) {
		return true, nil
	}
	if info.Size() > 0 && info.Size()+int64(len(line)) > maxSize {
		return true, os.Rename(path, path+oldSuffix)
	}
	if _, err := file.Write(line); err != nil {
		return false, errors.Join(err, file.Truncate(info.Size())) // a part of a line, on a full disk
	}
	return false, nil
}
