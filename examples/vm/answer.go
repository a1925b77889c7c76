package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"kurma.io/stager/examples/vm/line"
)

// maxLeft bounds what is read from a pipe or terminal once the call-in has
// ended: the kernel keeps less in either, and a process that still writes is not waited for.
const maxLeft = 2 << 20

// answer runs a call-in for a channel, to the end of either. The call-in is a
// process that asks the supervisor as one outside asks the reference stager's.
func answer(ch *line.Channel, req request) {
	code, err := runCallIn(ch, req)
	r := result{Code: code}
	if err != nil {
		r = result{Code: exitFailed, Error: inOneLine(err)}
	}
	_ = ch.Close(encode(r)) // a caller that has gone needs none
}

func runCallIn(ch *line.Channel, req request) (int, error) {
	s, err := openStdio(req)
	if err != nil {
		return 0, fmt.Errorf("open descriptors of call-in: %w", err)
	}
	defer s.close()
	process, err := startCallIn(req, s)
	if err != nil {
		return 0, fmt.Errorf("start call-in: %w", err)
	}
	s.closeTheirs()
	_ = ch.Note(encode(note{State: stateStarted})) // a caller that has gone shows below
	s.carryIn(ch)
	outputs := s.carryOut(ch)
	go applyNotes(ch, process, s)
	// With the call-in, its connection to the supervisor ends, and with that its command.
	ended := make(chan struct{})
	go func() {
		select {
		case <-ch.Done():
			_ = process.Kill()
		case <-ended:
		}
	}()
	state, err := process.Wait()
	close(ended)
	s.drain()
	outputs.Wait()
	if err != nil {
		return 0, err
	}
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return state.ExitCode(), nil
}

func startCallIn(req request, s *stdio) (*os.Process, error) {
	attr := &os.ProcAttr{
		Dir: "/", Env: []string{"HOME=/root", "TERM=" + req.Term}, Files: s.theirs[:],
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if s.terminal != nil {
		attr.Sys.Setctty, attr.Sys.Ctty = true, s.terminalDescriptor
	}
	return os.StartProcess("/proc/self/exe", append([]string{callRole}, req.Args...), attr)
}

// applyNotes does what the caller's notes ask for, until the channel is over.
func applyNotes(ch *line.Channel, process *os.Process, s *stdio) {
	for text := range ch.Notes() {
		var n note
		if json.Unmarshal(text, &n) != nil {
			continue
		}
		if n.Signal > 0 && n.Signal < 32 {
			_ = process.Signal(syscall.Signal(n.Signal)) // it may have ended
		}
		if n.Width > 0 && n.Height > 0 && s.terminal != nil {
			_ = setSize(s.terminal, n.Width, n.Height) // it may be closed
		}
	}
}

// stdio are a call-in's descriptors 0 to 3: pipes, but for those that are the
// caller's terminal, which are a terminal of the guest's.
type stdio struct {
	theirs [line.Streams]*os.File
	ours   [line.Streams]*os.File // nil for what the terminal has

	terminal           *os.File // our side; nil for none
	terminalDescriptor int      // the first that is the terminal
	terminalOutput     int      // the stream that its output goes to
}

func openStdio(req request) (s *stdio, err error) {
	s = &stdio{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if req.Terminal[0] || req.Terminal[1] || req.Terminal[2] {
		if err := s.openTerminal(req); err != nil {
			return nil, err
		}
	}
	for i := range s.theirs {
		if s.theirs[i] != nil || (i == 3 && !req.Settings) {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.theirs[i], s.ours[i] = r, w
		if i == 1 || i == 2 {
			s.theirs[i], s.ours[i] = w, r
		}
	}
	return s, nil
}

func (s *stdio) openTerminal(req request) error {
	master, slave, err := pty.Open()
	if err != nil {
		return err
	}
	defer slave.Close()
	if s.terminal, err = nonBlocking(master); err != nil {
		return err
	}
	s.terminalDescriptor, s.terminalOutput = -1, 1
	if !req.Terminal[1] {
		s.terminalOutput = 2
	}
	for i, is := range req.Terminal {
		if !is {
			continue
		}
		if s.terminalDescriptor < 0 {
			s.terminalDescriptor = i
		}
		fd, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		s.theirs[i] = os.NewFile(uintptr(fd), "terminal")
	}
	return setSize(s.terminal, max(req.Width, 1), max(req.Height, 1))
}

// nonBlocking returns another descriptor of f, on which deadlines work, and closes f.
func nonBlocking(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// setSize sets a terminal's size, while another goroutine may close it.
func setSize(terminal *os.File, width, height uint16) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	size := unix.Winsize{Col: width, Row: height}
	inner := raw.Control(func(fd uintptr) { err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	return errors.Join(inner, err)
}

// carryIn copies the caller's streams to the call-in, in the background.
func (s *stdio) carryIn(ch *line.Channel) {
	for _, stream := range []int{0, 3} {
		to := s.ours[stream]
		if to == nil && (stream == 3 || s.terminal == nil) {
			continue
		}
		go func() {
			if to == nil {
				_, _ = io.Copy(s.terminal, ch.Reader(stream))
				return
			}
			_, _ = io.Copy(to, ch.Reader(stream)) // a call-in that reads no more ends it
			to.Close()
		}()
	}
}

// carryOut copies what the call-in writes to the caller.
func (s *stdio) carryOut(ch *line.Channel) *sync.WaitGroup {
	var copies sync.WaitGroup
	from := map[int][]*os.File{1: {s.ours[1]}, 2: {s.ours[2]}}
	if s.terminal != nil {
		from[s.terminalOutput] = append(from[s.terminalOutput], s.terminal)
	}
	for stream, files := range from {
		copies.Go(func() {
			writer := ch.Writer(stream)
			var each sync.WaitGroup
			for _, f := range files {
				if f != nil {
					each.Go(func() { copyOut(writer, f) })
				}
			}
			each.Wait()
			_ = writer.Close()
		})
	}
	return &copies
}

// copyOut copies until the end of the pipe or terminal, or until drain and
// nothing is left. A caller that has gone has the call-in killed.
func copyOut(to io.Writer, from *os.File) {
	_, err := io.Copy(to, from)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	if from.SetReadDeadline(time.Time{}) != nil {
		return
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		buf := make([]byte, 32<<10)
		for left := maxLeft; left > 0; {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				break // nothing is there, or it is the end
			}
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
			left -= n
		}
		return true
	})
}

// drain has the copies of output end once they have what was written so far. It
// is called after the call-in's end: a process that it left behind may keep its
// descriptors open.
func (s *stdio) drain() {
	for _, f := range []*os.File{s.ours[1], s.ours[2], s.terminal} {
		if f != nil {
			_ = f.SetReadDeadline(time.Unix(1, 0))
		}
	}
}

func (s *stdio) closeTheirs() {
	for i, f := range s.theirs {
		if f != nil {
			f.Close()
			s.theirs[i] = nil
		}
	}
}

func (s *stdio) close() {
	s.closeTheirs()
	for _, f := range append(s.ours[:], s.terminal) {
		if f != nil {
			f.Close()
		}
	}
}
