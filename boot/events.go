package boot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
)

// maxEvents is how long names.EventsFile may become, some 10,000 changes, before it becomes the old one.
const maxEvents = 1 << 20

// appEvents writes the changes of the apps' states into a file, for the daemon. The pod does not depend on it: on a
// full disk, say, a change is left out.
type appEvents struct {
	path string
	log  *slog.Logger

	mu   sync.Mutex
	file *os.File // guarded by mu
}

// openEvents makes names.EventsFile, or continues that of a stager before.
func openEvents(path string, log *slog.Logger) (*appEvents, error) {
	file, err := openAppend(path)
	return &appEvents{path: path, log: log, file: file}, err
}

func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
}

// begin makes the file the old one, and begins another. After an error the file goes on, under whichever name.
func (e *appEvents) begin() error {
	if err := os.Rename(e.path, e.path+names.OldSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := openAppend(e.path)
	if err != nil {
		return err
	}
	_ = e.file.Close() // its lines are written
	e.file = file
	return nil
}

// changed is a pod's Changed.
func (e *appEvents) changed(c supervisor.Change) {
	line, err := json.Marshal(c)
	if err == nil {
		err = e.append(append(line, '\n'))
	}
	if err != nil {
		e.log.Warn("change of an app's state not recorded", "app", c.App, "state", c.State, "error", err)
	}
}

func (e *appEvents) append(line []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	info, err := e.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if size+int64(len(line)) > maxEvents {
		if err := e.begin(); err != nil {
			return err // the next change tries again
		}
		size = 0
	}
	if _, err := e.file.Write(line); err != nil {
		return errors.Join(err, e.file.Truncate(size)) // a part of a line, on a full disk
	}
	return nil
}

func (e *appEvents) close() error { return e.file.Close() }
