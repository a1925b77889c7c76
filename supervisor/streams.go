package supervisor

import (
	"os"
)

// streams are a run's stdin, stdout and stderr, or its terminal: the ends
// that the process gets, and ours.
type streams struct {
	stdio Stdio // for Container.Start
	fan   *fan
	pod   *Pod
	emit  [2]func([]byte)

	console  chan *os.File
	captures []*capture
	master   *os.File   // of a terminal, for what is typed and its size
	theirs   []*os.File // closed once the process has its own
}

// openStreams makes what a run of the app needs. finish frees it.
func openStreams(a *App, p *Pod) (*streams, error) {
	s := &streams{pod: p, fan: newFan(a.Terminal)}
	report := func(err error) { p.log.Error("write log", "app", a.Name, "error", err) }
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
		ours, theirs, err := openOutput()
		if err != nil {
			return err
		}
		*given = theirs
		s.theirs = append(s.theirs, theirs)
		s.captures = append(s.captures, startCapture(ours, s.pod.poller, s.pod.buffers, s.emit[i]))
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
		fd, err := duplicate(master)
		if err != nil {
			_ = master.Close()
			return
		}
		s.master = master
		s.fan.setMaster(master)
		s.captures = append(s.captures, startCapture(fd, s.pod.poller, s.pod.buffers, s.emit[stdout]))
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
	if s.master != nil {
		_ = s.master.Close()
	}
	s.fan.end(exit)
}
