package events

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Reader reads the events of a file, one after the other. The file and its folder need not exist.
type Reader struct{ lines *Lines }

// NewReader returns a reader of the events that are recorded from now on, or with past of all that are
// kept. The caller closes it.
func NewReader(path string, past bool) (*Reader, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	lines, err := NewLines(dir, filepath.Base(path), past)
	return &Reader{lines}, err
}

// Close closes the file.
func (r *Reader) Close() error { return r.lines.Close() }

// Next returns the next event. The error is io.EOF if it has not been recorded yet: the caller may
// call Next again later. A line that is damaged is left out.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.lines.Next()
		if err != nil {
			return Event{}, err
		}
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Action != "" {
			return e, nil
		}
	}
}
