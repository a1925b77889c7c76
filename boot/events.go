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

const (
	// maxEvents is how long names.EventsFile may become, some 10,000 changes, before it becomes the old one.
	maxEvents = 1 << 20
	// maxQueued is how many changes wait for the file.
	maxQueued = 1024
)

// appEvents writes the changes of the apps' states into a file, for the daemon. The pod does not depend on it: on a
// full disk, say, a change is left out, and no app waits for a disk that does not answer.
type appEvents struct {
	path    string
	log     *slog.Logger
	file    *os.File      // loop only
	written chan struct{} // closed by loop, read by close

	mu    sync.Mutex
	queue chan func() // called by loop; sent to and closed with mu held; nil when closed
}

// openEvents makes names.EventsFile, or continues that of a stager before.
func openEvents(path string, log *slog.Logger) (*appEvents, error) {
	file, err := openAppend(path)
	if err != nil {
		return nil, err
	}
	e := &appEvents{
		path: path, log: log, file: file,
		written: make(chan struct{}), queue: make(chan func(), maxQueued),
	}
	go e.loop(e.queue)
	return e, nil
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
	if !e.enqueue(func() { e.record(c) }) {
		e.lost(c, errors.New("the file takes no more changes"))
	}
}

func (e *appEvents) enqueue(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.queue <- f:
		return true
	default:
		return false
	}
}

// flush waits until the file has the changes until now, for a limited time, unless it takes no more.
func (e *appEvents) flush() error {
	flushed := make(chan struct{})
	if !e.enqueue(func() { close(flushed) }) {
		return nil // it is closed, or so far behind that changes are lost
	}
	return soon(func() error { <-flushed; return nil })
}

func (e *appEvents) lost(c supervisor.Change, err error) {
	e.log.Warn("change of an app's state not recorded", "app", c.App, "state", c.State, "error", err)
}

func (e *appEvents) loop(queue <-chan func()) {
	defer close(e.written)
	for f := range queue {
		f()
	}
}

func (e *appEvents) record(c supervisor.Change) {
	line, err := json.Marshal(c)
	if err == nil {
		err = e.append(append(line, '\n'))
	}
	if err != nil {
		e.lost(c, err)
	}
}

func (e *appEvents) append(line []byte) error {
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

// close waits for the changes until now, for a limited time. Later ones are lost. It is called once.
func (e *appEvents) close() error {
	e.mu.Lock()
	close(e.queue)
	e.queue = nil
	e.mu.Unlock()
	return soon(func() error {
		<-e.written
		return e.file.Close()
	})
}
