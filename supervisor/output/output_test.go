package output

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// log collects what is written to it. It may be written by several goroutines.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func newCollector(t *testing.T) *Collector {
	t.Helper()
	c := NewCollector()
	t.Cleanup(c.Close)
	return c
}

func open(t *testing.T, c *Collector, options Options) *Streams {
	t.Helper()
	s, err := c.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// held returns another descriptor of a process's end of a pipe, as the process has one.
func held(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func write(t *testing.T, f io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestOutputGoesToTheLogAndToAttachments(t *testing.T) {
	var out, errs log
	s := open(t, newCollector(t), Options{Stdout: &out, Stderr: &errs})
	if s.Stdin != nil || s.Console != nil {
		t.Errorf("stdin %v, console %v", s.Stdin, s.Console)
	}
	early, err := s.Attach()
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	stdout, stderr := held(t, s.Stdout), held(t, s.Stderr)
	s.Started()
	write(t, stdout, "one ")
	if _, err := io.ReadFull(early.Stdout, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	late, err := s.Attach()
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	write(t, stdout, "two")
	write(t, stderr, "three")
	if err := errors.Join(stdout.Close(), stderr.Close()); err != nil {
		t.Fatal(err)
	}
	s.Finish()
	for _, a := range []*Attachment{early, late} {
		<-a.Done()
		// The last byte came before the end.
		if got, errs := readAll(t, a.Stdout), readAll(t, a.Stderr); got != "two" || errs != "three" || a.Err() != nil {
			t.Errorf("%q, %q, %v", got, errs, a.Err())
		}
	}
	if out.text.String() != "one two" || errs.text.String() != "three" {
		t.Errorf("log %q, %q", &out.text, &errs.text)
	}
	if _, err := s.Attach(); !errors.Is(err, ErrEnded) {
		t.Errorf("attach after the end: %v", err)
	}
}

func TestAttachmentsWriteToStdin(t *testing.T) {
	s := open(t, newCollector(t), Options{OpenStdin: true})
	theirs := held(t, s.Stdin)
	defer theirs.Close()
	s.Started()
	for _, text := range []string{"one", "two"} {
		a, err := s.Attach()
		if err != nil {
			t.Fatal(err)
		}
		write(t, a.Stdin, text)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		<-a.Done()
		if !errors.Is(a.Err(), os.ErrClosed) {
			t.Errorf("closed: %v", a.Err())
		}
	}
	s.Finish()
	if got := readAll(t, theirs); got != "onetwo" {
		t.Errorf("%q", got)
	}
}

// The app's processes may close the terminal all at once, and open it again by its name.
func TestATerminalIsReadAgainAfterItWasClosed(t *testing.T) {
	var out log
	c := newCollector(t)
	s := open(t, c, Options{Terminal: true, Stdout: &out})
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
	s.Console <- master
	s.Started()
	for waiting := 0; waiting == 0; runtime.Gosched() {
		select {
		case <-s.captures[0].done:
			t.Fatal("nothing reads the terminal any more")
		default:
		}
		c.poller.mu.Lock()
		waiting = len(c.poller.waiting)
		c.poller.mu.Unlock()
	}
	again, err := os.OpenFile(slave.Name(), os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Attach()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	write(t, again, "again")
	if _, err := io.ReadFull(a.Stdout, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	s.Finish()
	if out.text.String() != "again" {
		t.Errorf("log %q", &out.text)
	}
}

func TestALogsErrorIsReportedOnceForEachSeries(t *testing.T) {
	fail := errors.New("no space left on device")
	answers := []error{fail, fail, nil, fail}
	var got []error
	w := logWriter(writerFunc(func() (err error) {
		err, answers = answers[0], answers[1:]
		return err
	}), func(err error) { got = append(got, err) })
	for range 4 {
		w([]byte("x"))
	}
	if len(got) != 2 || len(answers) != 0 {
		t.Errorf("%d errors reported, %d writes missing", len(got), len(answers))
	}
}

// writerFunc is the error of each Write to a log.
type writerFunc func() error

func (f writerFunc) Write(p []byte) (int, error) { return len(p), f() }

func TestAnIdleStreamHoldsNoBuffer(t *testing.T) {
	var chunks [][]byte
	ours, theirs, err := openOutput()
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(t).capture(ours, func(p []byte) { chunks = append(chunks, bytes.Clone(p)) })
	if _, err := theirs.WriteString(strings.Repeat("x", readSize)); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	c.finish()
	if len(chunks) != 1 || len(chunks[0]) != readSize {
		t.Errorf("%d reads for what one can take", len(chunks))
	}
}

func TestAnAttachmentThatKeepsUpHoldsNothing(t *testing.T) {
	var done sync.WaitGroup
	r := newRelay(false, newBacklogs())
	a, err := newAttachment(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	text := strings.Repeat("x", readSize)
	for range 3 {
		done.Go(func() { r.backlogs[0].add([]byte(text)) })
		if _, err := io.CopyN(io.Discard, a.Stdout, readSize); err != nil {
			t.Fatal(err)
		}
		done.Wait()
	}
	b := r.backlogs[0]
	b.all.mu.Lock()
	defer b.all.mu.Unlock()
	if s := a.senders[0]; s.next != b.last || s.behind != 0 || b.last.text != nil {
		t.Errorf("%d bytes behind", s.behind)
	}
}

// A process that is not the run's may hold the pipe and write to it without an end.
func TestAForeignWriterIsReadToALimit(t *testing.T) {
	ours, theirs, err := openOutput()
	if err != nil {
		t.Fatal(err)
	}
	finishing, total := make(chan struct{}), 0
	c := newCollector(t).capture(ours, func(text []byte) {
		<-finishing
		if total += len(text); total < 4*drainLimit { // no more, so that a capture without a limit ends
			write(t, theirs, string(text))
		}
	})
	write(t, theirs, strings.Repeat("x", readSize))
	go func() {
		<-c.finished
		close(finishing)
	}()
	c.finish()
	if total < drainLimit || total > drainLimit+3*readSize {
		t.Errorf("%d bytes are read, want about %d", total, drainLimit)
	}
	if err := theirs.Close(); err != nil {
		t.Error(err)
	}
}

// What is kept for a reader that does not read has a limit.
func TestAnAttachmentFarBehindIsDropped(t *testing.T) {
	r := newRelay(false, newBacklogs())
	a, err := newAttachment(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	text := make([]byte, readSize)
	for range 2 * backlogLimit / readSize {
		r.backlogs[0].add(text)
	}
	b := r.backlogs[0]
	b.all.mu.Lock()
	left := len(b.senders)
	b.all.mu.Unlock()
	if left != 0 {
		t.Fatal("it is not dropped")
	}
	<-a.Done()
	if !errors.Is(a.Err(), ErrDropped) {
		t.Errorf("%v, want %v", a.Err(), ErrDropped)
	}
}

// A reader that wants no output, such as that of an input alone, is not dropped for the output.
func TestAnAttachmentThatIgnoresTheOutputIsNotDropped(t *testing.T) {
	s := open(t, newCollector(t), Options{})
	a, err := s.Attach()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.IgnoreOutput(true, false)
	for range 2 * backlogLimit / readSize {
		s.relay.backlogs[0].add(make([]byte, readSize))
	}
	s.relay.backlogs[1].add([]byte("text"))
	s.Finish()
	<-a.Done()
	if out, errs := readAll(t, a.Stdout), readAll(t, a.Stderr); out != "" || errs != "text" || a.Err() != nil {
		t.Errorf("%d bytes, %q, %v", len(out), errs, a.Err())
	}
}

// The limit is for all runs together: the slowest attachment makes room, whose ever it is.
func TestTheSlowestAttachmentOfAllRunsIsDropped(t *testing.T) {
	c := newCollector(t)
	var all [2]*Attachment
	for i, chunks := range []int{backlogLimit / readSize * 5 / 8, backlogLimit / readSize / 2} {
		s := open(t, c, Options{})
		defer s.Finish()
		a, err := s.Attach()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		all[i] = a
		for range chunks {
			s.relay.backlogs[i].add(make([]byte, readSize))
		}
	}
	select {
	case <-all[0].Done():
	case <-time.After(stallLimit / 2): // before it counts as stalled
		t.Fatal("none is dropped")
	}
	if err := all[0].Err(); !errors.Is(err, ErrDropped) {
		t.Errorf("%v, want %v", err, ErrDropped)
	}
	select {
	case <-all[1].Done():
		t.Errorf("the other is dropped also: %v", all[1].Err())
	default:
	}
}

// A reader that has stalled is dropped before it is so far behind, and when the app has ended. Both take as long as a
// reader may stall.
func TestAStalledAttachmentIsDropped(t *testing.T) {
	t.Parallel() // it waits for a limit
	for name, test := range map[string]struct {
		chunks, size int
		ended        bool
	}{"far behind": {stallBehind/readSize + 4, readSize, false}, "at the end": {1, stallBehind / 2, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(false, newBacklogs())
			a, err := newAttachment(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			for range test.chunks {
				r.backlogs[0].add(make([]byte, test.size))
			}
			if _, err := io.ReadFull(a.Stdout, make([]byte, 1)); err != nil { // a write is under way
				t.Fatal(err)
			}
			if test.ended {
				r.end()
			}
			select {
			case <-a.Done():
			case <-time.After(6 * stallLimit):
				t.Fatal("it is not dropped")
			}
			if !errors.Is(a.Err(), ErrDropped) {
				t.Errorf("%v, want %v", a.Err(), ErrDropped)
			}
		})
	}
}

// A reader that reads all the time is not dropped for its speed, such as that of a serial line.
func TestASlowAttachmentIsNotDropped(t *testing.T) {
	t.Parallel()
	r := newRelay(false, newBacklogs())
	a, err := newAttachment(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	const chunks = 3 // more than the pipe holds
	for range chunks {
		r.backlogs[0].add(make([]byte, readSize))
	}
	r.end()
	const page, reads = 4096, 8
	pace := time.NewTicker(stallLimit / (reads - 2)) // longer than stallLimit in all
	defer pace.Stop()
	for range reads {
		<-pace.C
		if _, err := io.ReadFull(a.Stdout, make([]byte, page)); err != nil {
			t.Fatal(err)
		}
	}
	if rest := readAll(t, a.Stdout); len(rest) != chunks*readSize-reads*page {
		t.Errorf("%d bytes are left to read", len(rest))
	}
	<-a.Done()
	if a.Err() != nil {
		t.Error(a.Err())
	}
}
