// Package journal sends the apps' output to systemd's journal, beside their logs in files.
package journal

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

// connection sends the apps' lines to systemd's journal, in its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL): a datagram for each, of fields
// NAME=value, one to a line. It never keeps an app waiting: lines that
// the journal does not accept in time are dropped; the number of dropped lines is logged.
type connection struct {
	path    string
	log     *slog.Logger
	queue   chan []byte
	bytes   atomic.Int64  // in queue
	closing chan struct{} // closed by close
	done    chan struct{} // closed when the sender has ended

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

// Priority is one of syslog(3).
type Priority int

// The priorities of an app's lines: those of stderr and of stdout.
const (
	Error Priority = 3
	Info  Priority = 6
)

// connect connects to journald's socket. The caller closes the connection.
func connect(path string, log *slog.Logger) (*connection, error) {
	j := &connection{path: path, log: log, queue: make(chan []byte, journalLines), closing: make(chan struct{}), done: make(chan struct{})}
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
func (j *connection) close() error {
	j.mu.Lock()
	conn := j.conn
	j.conn = nil
	err := conn.SetWriteDeadline(time.Now().Add(journalDrain))
	j.mu.Unlock()
	close(j.closing)
	<-j.done
	return errors.Join(err, conn.Close())
}

// offer takes an entry, unless the queue is full.
func (j *connection) offer(entry []byte) bool {
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
func (j *connection) serve(conn *net.UnixConn) {
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
func (j *connection) next() (entry []byte) {
	select {
	case entry = <-j.queue:
	case <-j.closing:
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
func (j *connection) send(conn *net.UnixConn, entry []byte) (*net.UnixConn, error) {
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
func (j *connection) replace(conn *net.UnixConn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conn == nil {
		return false
	}
	j.conn = conn
	return true
}

// entryOf returns the datagram of one line, without its newline.
func entryOf(app string, priority Priority, line []byte) []byte {
	entry := make([]byte, 0, len(line)+len(app)+64)
	entry = append(entry, "SYSLOG_IDENTIFIER="+app+"\nPRIORITY="+strconv.Itoa(int(priority))+"\nMESSAGE="...)
	return append(append(entry, line...), '\n')
}

// stream is one stream of an app. A line that is not complete waits for
// its end.
type stream struct {
	journal  *connection
	app      string
	priority Priority

	mu      sync.Mutex
	partial []byte // guarded by mu
	dropped int    // guarded by mu; lines
}

// Write implements io.Writer. It has no error and does not wait.
func (s *stream) Write(chunk []byte) (int, error) {
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

// flush sends the line, after the number of those that were lost before it.
func (s *stream) flush() {
	line := s.partial
	s.partial = s.partial[:0]
	if s.dropped > 0 {
		text := fmt.Sprintf("%d lines before this one were dropped: the journal was too slow", s.dropped)
		if !s.journal.offer(entryOf(s.app, Error, []byte(text))) {
			s.dropped++
			return
		}
		s.dropped = 0
	}
	if !s.journal.offer(entryOf(s.app, s.priority, line)) {
		s.dropped++
	}
}

// end sends a last line without a newline.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.partial) > 0 {
		s.flush()
	}
}

// Journal is the apps' way to the journal. The zero value is a Journal that sends nothing.
type Journal struct {
	journal *connection
	streams []*stream
}

// Open connects to journald's socket at path. Where there is none, it logs that, once, and
// returns a Journal that sends nothing. The caller closes the Journal.
func Open(path string, log *slog.Logger) *Journal {
	j, err := connect(path, log)
	if err != nil {
		log.Warn("the apps' output goes to files only: the daemon gives no journal to the stager", "error", err)
		return &Journal{}
	}
	return &Journal{journal: j}
}

// Tee returns a writer to w that also sends each line to the journal, as one of the app with that
// priority. It returns w where there is no journal. It must not be called concurrently with
// any other method.
func (a *Journal) Tee(app string, priority Priority, w io.Writer) io.Writer {
	if a.journal == nil {
		return w
	}
	s := &stream{journal: a.journal, app: app, priority: priority}
	a.streams = append(a.streams, s)
	return io.MultiWriter(w, s)
}

// EndLines sends what a process of the app has written without a newline at its end. It is
// called before another process of the app writes, and when the app has ended. Several goroutines may call it at
// once.
func (a *Journal) EndLines(app string) {
	for _, s := range a.streams {
		if s.app == app {
			s.end()
		}
	}
}

// Close sends what is left, for a second at most, and closes the connection.
func (a *Journal) Close() error {
	if a.journal == nil {
		return nil
	}
	for _, s := range a.streams {
		s.end()
	}
	return a.journal.close()
}
