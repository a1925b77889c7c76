package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// callerTTY is the terminal of a call-in's caller.
type callerTTY struct {
	which [3]bool  // the descriptors that are it
	file  *os.File // nil for none
}

// callerTerminal looks for a terminal among the descriptors 0 to 2.
func callerTerminal() *callerTTY {
	t := &callerTTY{}
	for i, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if t.which[i] = term.IsTerminal(int(f.Fd())); t.which[i] && t.file == nil {
			t.file = f
		}
	}
	return t
}

// size returns the terminal's size in characters, 80 by 24 if there is none.
func (t *callerTTY) size() (width, height uint16) {
	if t.file != nil {
		if w, h, err := term.GetSize(int(t.file.Fd())); err == nil && w > 0 && h > 0 {
			return uint16(w), uint16(h)
		}
	}
	return 80, 24
}

// raw has every byte typed go to the guest's terminal, which echoes, edits and
// sends signals, until restore is called. A write to a closed stdout is an error meanwhile, and
// no deadly SIGPIPE, which would leave the terminal raw.
func (t *callerTTY) raw() (restore func(), err error) {
	if !t.which[0] {
		return func() {}, nil
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)
	state, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(int(os.Stdin.Fd()), state) }, nil // nothing is left to do about one that went away
}
