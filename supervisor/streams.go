package supervisor

import (
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// streams are a run's stdin, stdout and stderr, or its terminal: the ends
// that the process gets, and ours.
type streams struct {
	stdio   Stdio // for Container.Start
	fan     *fan
	buffers *bufferPool
	emit    [2]func([]byte)

	console  chan *os.File
	captures []*capture
	theirs   []*os.File // closed once the process has its own
}

// openStreams makes what a run of the app needs. finish frees it.
func openStreams(a *App, buffers *bufferPool, log *slog.Logger) (*streams, error) {
	s := &streams{fan: newFan(a.Terminal), buffers: buffers}
	report := func(err error) { log.Error("write log", "app", a.Name, "error", err) }
	out, errs := logWriter(a.Stdout, report), logWriter(a.Stderr, report)
	s.emit = [2]func([]byte){
		func(chunk []byte) { out(chunk); s.fan.emit(stdout, chunk) },
		func(chunk []byte) { errs(chunk); s.fan.emit(stderr, chunk) },
	}
	if a.Terminal {
		s.console = make(chan *os.File, 1)
		s.stdio = Stdio{Terminal: true, Console: s.console}
		return s, nil
	}
	s.stdio = Stdio{Stdin: a.Stdin, Stdout: a.OutFile, Stderr: a.ErrFile}
	if err := s.openPipes(a); err != nil {
		s.finish(Exit{})
		return nil, err
	}
	return s, nil
}

func (s *streams) openPipes(a *App) error {
	for i, given := range []**os.File{&s.stdio.Stdout, &s.stdio.Stderr} {
		if *given != nil {
			continue
		}
		ours, theirs, err := pipe(false)
		if err != nil {
			return err
		}
		// Beyond the user's limit (pipe(7)) it stays as it is, and slower.
		_, _ = unix.FcntlInt(theirs.Fd(), unix.F_SETPIPE_SZ, outputPipe)
		*given = theirs
		s.theirs = append(s.theirs, theirs)
		s.captures = append(s.captures, startCapture(ours, s.buffers, s.emit[i]))
	}
	if !a.OpenStdin || a.Stdin != nil {
		return nil
	}
	ours, theirs, err := pipe(true)
	if err != nil {
		return err
	}
	s.stdio.Stdin = theirs
	s.fan.setStdin(ours, theirs)
	return nil
}

// started takes the terminal's master and closes what only the process needs.
// It is called once the process has been started.
func (s *streams) started() {
	s.closeTheirs()
	s.takeConsole()
}

func (s *streams) closeTheirs() {
	for _, f := range s.theirs {
		_ = f.Close()
	}
	s.theirs = nil
}

func (s *streams) takeConsole() {
	select {
	case master := <-s.console:
		master, err := nonBlocking(master)
		if err != nil {
			return // out of descriptors: the app sees its terminal hang up
		}
		s.fan.setMaster(master)
		s.captures = append(s.captures, startCapture(master, s.buffers, s.emit[stdout]))
	default:
	}
}

// finish takes the last output of processes that have ended, hands it on,
// and ends the attachments with exit.
func (s *streams) finish(exit Exit) {
	s.closeTheirs()
	s.takeConsole()
	for _, c := range s.captures {
		c.finish()
	}
	s.fan.end(exit)
}
