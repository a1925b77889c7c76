package output

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Streams are a run's stdin, stdout and stderr, or its terminal: the ends that the
// process gets, and ours. Open makes them; then the caller starts the process with the
// exported fields, calls Started, and Finish once all processes of the run have ended.
// Attach may be called at any time by several goroutines at once, the others
// by one goroutine at a time.
type Streams struct {
	// Stdin, Stdout and Stderr are the process's ends, nil for /dev/null and where there
	// is a terminal. They belong to Streams, but for the pipes and sockets that Options gave.
	Stdin, Stdout, Stderr *os.File
	// Console, nil without a terminal, takes the terminal's master from the
	// code that starts the process, before Started. It has room for one, and
	// Streams closes what it takes.
	Console chan *os.File

	collector *Collector
	relay     *relay
	emit      [2]func([]byte) // of stdout, or the terminal, and stderr

	captures []*capture
	master   *os.File   // of a terminal, for what is typed and its size
	theirs   []*os.File // the process's ends of our pipes, closed once it has its own
	fed      *os.File   // our end of a pipe that Options.Stdin is copied to
	stopFeed *os.File   // whose end stops that
}

// Open makes what a run needs. After an error nothing is left to be freed;
// otherwise Finish frees it.
func (c *Collector) Open(options Options) (*Streams, error) {
	s := &Streams{collector: c, relay: newRelay(options.Terminal, c.backlogs)}
	for i, w := range []io.Writer{options.Stdout, options.Stderr} {
		log := logWriter(w, options.LogError)
		s.emit[i] = func(text []byte) { log(text); s.relay.backlogs[i].add(text) }
	}
	if options.Terminal {
		s.Console = make(chan *os.File, 1)
		return s, nil
	}
	err := errors.Join(s.openOutputs(options), s.openStdin(options))
	if err != nil {
		s.Finish()
		return nil, err
	}
	return s, nil
}

func (s *Streams) openOutputs(options Options) error {
	files := [2]*os.File{options.OutFile, options.ErrFile}
	for i, theirs := range []**os.File{&s.Stdout, &s.Stderr} {
		file, emit := files[i], s.emit[i]
		switch {
		case isNull(file):
			continue // the process's own
		case isLent(file):
			*theirs = file
			continue
		case i == 1 && sameFile(file, files[0]):
			*theirs = s.Stdout // one pipe keeps the order of what is written
			continue
		case file != nil:
			emit = logWriter(file, options.LogError)
		}
		ours, end, err := openOutput()
		if err != nil {
			return err
		}
		*theirs = end
		s.theirs = append(s.theirs, end)
		s.captures = append(s.captures, s.collector.capture(ours, emit))
	}
	return nil
}

func (s *Streams) openStdin(options Options) error {
	if isLent(options.Stdin) {
		s.Stdin = options.Stdin
		return nil
	}
	if isNull(options.Stdin) || options.Stdin == nil && !options.OpenStdin {
		return nil // the process's own
	}
	ours, theirs, err := pipe(true)
	if err != nil {
		return err
	}
	s.Stdin = theirs
	if options.Stdin == nil {
		s.relay.setStdin(ours, theirs)
		return nil
	}
	stopped, stop, err := os.Pipe()
	if err != nil {
		return errors.Join(err, ours.Close(), theirs.Close())
	}
	s.fed, s.stopFeed, s.theirs = ours, stop, append(s.theirs, theirs)
	polled := feeding(options.Stdin, stopped)
	go func() {
		defer ours.Close()
		defer stopped.Close()
		feed(ours, options.Stdin, polled)
	}()
	return nil
}

// Started takes the terminal's master and closes the ends that only the process needs.
// It is called once, when the process has been started.
func (s *Streams) Started() {
	s.closeTheirs()
	s.takeConsole()
}

func (s *Streams) closeTheirs() {
	release(s.theirs...)
	s.theirs = nil
}

func (s *Streams) takeConsole() {
	select {
	case master := <-s.Console:
		fd, err := duplicate(master)
		if err != nil {
			_ = master.Close() // out of descriptors: the app sees its terminal hang up
			return
		}
		_ = unix.SetNonblock(fd, true) // for all descriptors of the terminal, also those of keyboards
		s.master = master
		s.relay.setMaster(master)
		s.captures = append(s.captures, s.collector.capture(fd, s.emit[0]))
	default:
	}
}

// Finish reads the last output of processes that have ended, passes it to the log and to
// the attachments, and ends these: each is Done once its last byte is in its pipe.
// It waits for the log, not for an attachment. It is called once, also when no process was started.
func (s *Streams) Finish() {
	s.closeTheirs()
	s.takeConsole()
	for _, c := range s.captures {
		c.finish()
	}
	_ = s.stopFeed.Close() // nil is none
	release(s.master, s.fed)
	s.relay.end()
}
