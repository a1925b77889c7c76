package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// journal sends the apps' lines to systemd's journal, in its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL): a datagram for each, of fields
// NAME=value, one to a line. It never keeps an app waiting: what the journal
// does not take in time is dropped, and their number told. The logs in files
// have everything.
type journal struct {
	path  string
	log   *slog.Logger
	queue chan []byte
	bytes atomic.Int64 // in queue
	over  chan struct{}
	done  chan struct{} // closed when the sender has ended

	mu   sync.Mutex
	conn *net.UnixConn // guarded by mu; nil once closed
}

const (
	journalQueue = 4 << 20 // bytes
	journalLines = 8192    // in the queue

	// maxJournalLine is where a line is cut, as journald itself does with what
	// it reads from a service (journald.conf(5), LineMax).
	maxJournalLine = 48 << 10

	// journalDrain bounds the wait for the journal at the pod's end.
	journalDrain = time.Second
)

// Priorities of syslog(3).
const (
	priorityError = 3
	priorityInfo  = 6
)

// openJournal connects to journald's socket. The caller closes the journal.
func openJournal(path string, log *slog.Logger) (*journal, error) {
	j := &journal{path: path, log: log, queue: make(chan []byte, journalLines), over: make(chan struct{}), done: make(chan struct{})}
	var err error
	if j.conn, err = dialJournal(path); err != nil {
		return nil, fmt.Errorf("connect to journal: %w", err)
	}
	go j.serve(j.conn)
	return j, nil
}

func dialJournal(path string) (*net.UnixConn, error) {
	return net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
}

// close sends what is left, as long as the journal takes it.
func (j *journal) close() error {
	j.mu.Lock()
	conn := j.conn
	j.conn = nil
	err := conn.SetWriteDeadline(time.Now().Add(journalDrain))
	j.mu.Unlock()
	close(j.over)
	<-j.done
	return errors.Join(err, conn.Close())
}

// offer takes an entry, unless the queue is full.
func (j *journal) offer(entry []byte) bool {
	n := int64(len(entry))
	if j.bytes.Add(n) <= journalQueue {
		select {
		case j.queue <- entry:
			return true
		default:
		}
	}
	j.bytes.Add(-n)
	return false
}

// serve sends entries until the journal is closed and the queue empty.
func (j *journal) serve(conn *net.UnixConn) {
	defer close(j.done)
	told := false
	for {
		entry := j.next()
		if entry == nil {
			return
		}
		var err error
		if conn, err = j.send(conn, entry); err != nil && !told {
			told = true
			j.log.Warn("the journal does not take the apps' output; it is in their log files", "error", err)
		}
	}
}

// next takes an entry out of the queue, nil when it is empty and the journal
// closed.
func (j *journal) next() (entry []byte) {
	select {
	case entry = <-j.queue:
	case <-j.over:
		select {
		case entry = <-j.queue:
		default:
			return nil
		}
	}
	j.bytes.Add(-int64(len(entry)))
	return entry
}

// send sends an entry, over a new connection where journald has been started
// again with a new socket.
func (j *journal) send(conn *net.UnixConn, entry []byte) (*net.UnixConn, error) {
	_, err := conn.Write(entry)
	if err == nil || errors.Is(err, net.ErrClosed) {
		return conn, err
	}
	fresh, dialErr := dialJournal(j.path)
	if dialErr != nil {
		return conn, err
	}
	if !j.replace(fresh) {
		return conn, errors.Join(err, fresh.Close())
	}
	_ = conn.Close()
	_, err = fresh.Write(entry)
	return fresh, err
}

// replace makes conn the one that close gives a deadline, unless it has done so.
func (j *journal) replace(conn *net.UnixConn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conn == nil {
		return false
	}
	j.conn = conn
	return true
}

// journalEntry is the datagram of one line, without its newline.
func journalEntry(app string, priority int, line []byte) []byte {
	entry := make([]byte, 0, len(line)+len(app)+64)
	entry = append(entry, "SYSLOG_IDENTIFIER="+app+"\nPRIORITY="+strconv.Itoa(priority)+"\nMESSAGE="...)
	return append(append(entry, line...), '\n')
}

// journalStream is one stream of an app. A line that is not complete waits for
// its end.
type journalStream struct {
	journal  *journal
	app      string
	priority int

	mu      sync.Mutex
	partial []byte // guarded by mu
	dropped int    // guarded by mu; lines
}

// Write implements io.Writer. It has no error and does not wait.
func (s *journalStream) Write(chunk []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rest := chunk; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if room := maxJournalLine - len(s.partial); len(line) > room {
			line, after, whole = rest[:room], rest[room:], true
		}
		s.partial = append(s.partial, line...)
		if rest = after; whole {
			s.flush()
		}
	}
	return len(chunk), nil
}

// flush hands the line on, after the number of those that were lost before it.
func (s *journalStream) flush() {
	line := s.partial
	s.partial = s.partial[:0]
	if s.dropped > 0 {
		text := fmt.Sprintf("%d lines before this one were dropped: the journal was too slow", s.dropped)
		if !s.journal.offer(journalEntry(s.app, priorityError, []byte(text))) {
			s.dropped++
			return
		}
		s.dropped = 0
	}
	if !s.journal.offer(journalEntry(s.app, s.priority, line)) {
		s.dropped++
	}
}

// end hands on a last line without a newline.
func (s *journalStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.partial) > 0 {
		s.flush()
	}
}

// appJournal is the apps' way to the journal. The zero value is none.
type appJournal struct {
	journal *journal
	streams []*journalStream
}

// open connects to the journal. Where there is none, the log says so, once.
func (a *appJournal) open(path string, log *slog.Logger) {
	j, err := openJournal(path, log)
	if err != nil {
		log.Warn("the apps' output goes to files only: the daemon gives no journal to the stager", "error", err)
		return
	}
	a.journal = j
}

// also writes to the journal what is written to w.
func (a *appJournal) also(app string, priority int, w io.Writer) io.Writer {
	if a.journal == nil {
		return w
	}
	s := &journalStream{journal: a.journal, app: app, priority: priority}
	a.streams = append(a.streams, s)
	return io.MultiWriter(w, s)
}

// endLines hands on what a process of the app has written without a newline at
// its end, before another one writes or the app is over. It may be called by several goroutines
// at once.
func (a *appJournal) endLines(app string) {
	for _, s := range a.streams {
		if s.app == app {
			s.end()
		}
	}
}

func (a *appJournal) close() error {
	if a.journal == nil {
		return nil
	}
	for _, s := range a.streams {
		s.end()
	}
	return a.journal.close()
}
