// Package journal sends the apps' output to systemd's journal: for the stager without waiting, in addition to the log
// files, and for others line by line.
package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// connection sends the apps' lines to systemd's journal, in its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL): one datagram for each line, with fields
// NAME=value, one to a line. An app never waits for the journal: lines that the journal does
// not accept in time are dropped, and the number of dropped lines is logged.
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

	// maxJournalLine is the length in bytes at which a line is split, the same at which
	// journald splits a service's output (journald.conf(5), LineMax).
	maxJournalLine = 48 << 10

	// journalDrain limits the wait for the journal at the pod's end.
	journalDrain = time.Second
)

// Priority is a priority of syslog(3).
type Priority int

// The priorities of an app's lines: Error for stderr, Info for stdout.
const (
	Error Priority = 3
	Info  Priority = 6
)

// connect connects to journald's socket. The caller closes the connection.
func connect(path string, log *slog.Logger) (*connection, error) {
	j := &connection{
		path: path, log: log,
		queue: make(chan []byte, journalLines), closing: make(chan struct{}), done: make(chan struct{}),
	}
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

// close sends the remaining lines, for at most journalDrain, and closes the connection.
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

// offer queues an entry. It returns false if the queue is full.
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

// serve sends entries until the connection is closing and the queue is empty.
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
			j.log.Warn("the journal does not accept the apps' output; the output goes to the log files only", "error", err)
		}
	}
}

// next removes an entry from the queue. It returns nil if the queue is empty and the
// connection is closing.
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

// send sends an entry. If journald has been restarted with a new socket, send connects again
// and returns the new connection.
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

// replace makes conn the connection that gets close's deadline. It returns false if close has
// already set one.
func (j *connection) replace(conn *net.UnixConn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.conn == nil {
		return false
	}
	j.conn = conn
	return true
}

// Origin is the pod whose apps write.
type Origin struct{ Name, UUID string }

// fieldsOf returns the fields that all lines of an app have.
func fieldsOf(pod Origin, app string) (fields []byte) {
	for _, field := range [][2]string{
		{"SYSLOG_IDENTIFIER", app}, {"KURMA_APP", app}, {"KURMA_POD", pod.Name}, {"KURMA_POD_UUID", pod.UUID},
	} {
		if name, value := field[0], field[1]; strings.Contains(value, "\n") { // has a form of its own
			fields = binary.LittleEndian.AppendUint64(append(fields, name+"\n"...), uint64(len(value)))
			fields = append(fields, value+"\n"...)
		} else {
			fields = append(fields, name+"="+value+"\n"...)
		}
	}
	return fields
}

// Send sends a line as an entry of an app to journald's socket at path, and waits while the journal has no room for it.
// The line has no newline.
func Send(path string, pod Origin, app string, priority Priority, line string) error {
	conn, err := dialJournal(path) // each time: journald may have been restarted with a new socket
	if err == nil {
		_, err = conn.Write(entryOf(fieldsOf(pod, app), priority, []byte(line)))
		err = errors.Join(err, conn.Close())
	}
	if err != nil {
		return fmt.Errorf("send to journal: %w", err)
	}
	return nil
}

// entryOf returns the datagram for one line; line has no newline.
func entryOf(fields []byte, priority Priority, line []byte) []byte {
	entry := append(make([]byte, 0, len(fields)+len(line)+32), fields...)
	entry = append(entry, "PRIORITY="+strconv.Itoa(int(priority))+"\nMESSAGE="...)
	return append(append(entry, line...), '\n')
}

// stream is one stream of an app. It keeps an incomplete line until the rest arrives.
type stream struct {
	journal  *connection
	app      string
	fields   []byte
	priority Priority

	mu      sync.Mutex
	partial []byte // guarded by mu
	dropped int    // guarded by mu; lines
}

// Write implements io.Writer. It never waits and never returns an error.
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

// flush sends the line. If lines before it were dropped, flush first sends their number.
func (s *stream) flush() {
	line := s.partial
	s.partial = s.partial[:0]
	if s.dropped > 0 {
		text := fmt.Sprintf("%d lines before this one were dropped: the journal was too slow", s.dropped)
		if !s.journal.offer(entryOf(s.fields, Error, []byte(text))) {
			s.dropped++
			return
		}
		s.dropped = 0
	}
	if !s.journal.offer(entryOf(s.fields, s.priority, line)) {
		s.dropped++
	}
}

// end sends an incomplete last line.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.partial) > 0 {
		s.flush()
	}
}

// Journal sends the apps' output to the journal. The zero value sends nothing.
type Journal struct {
	journal *connection
	pod     Origin
	streams []*stream
}

// Open connects to journald's socket at path. Each line has the pod's name and UUID as the fields KURMA_POD and
// KURMA_POD_UUID, and the app's name as KURMA_APP. If Open cannot connect, it logs a warning and returns a Journal that
// sends nothing. The caller closes the Journal.
func Open(path string, pod Origin, log *slog.Logger) *Journal {
	j, err := connect(path, log)
	if err != nil {
		log.Warn("the apps' output goes to files only: the stager cannot reach the journal", "error", err)
		return &Journal{}
	}
	return &Journal{journal: j, pod: pod}
}

// Tee returns a writer that writes to w and also sends each line to the journal, as the app's,
// with that priority. Without a journal it returns w. It must not be called concurrently with
// any other method.
func (a *Journal) Tee(app string, priority Priority, w io.Writer) io.Writer {
	if a.journal == nil {
		return w
	}
	s := &stream{journal: a.journal, app: app, fields: fieldsOf(a.pod, app), priority: priority}
	a.streams = append(a.streams, s)
	return io.MultiWriter(w, s)
}

// EndLines sends an incomplete last line that a process of the app has written. Call it before
// another process of the app writes, and when the app has ended. Several goroutines may call it
// at once.
func (a *Journal) EndLines(app string) {
	for _, s := range a.streams {
		if s.app == app {
			s.end()
		}
	}
}

// Close sends the remaining lines, for at most a second, and closes the connection.
func (a *Journal) Close() error {
	if a.journal == nil {
		return nil
	}
	for _, s := range a.streams {
		s.end()
	}
	return a.journal.close()
}
