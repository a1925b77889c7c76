package main

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// stdio is what a call-in is given.
func (c *cli) stdio() [3]*os.File { return [3]*os.File{c.stdin, os.Stdout, os.Stderr} }

// keepTerminal notes the state of the caller's terminal, which a call-in makes
// raw where it needs to, and returns what brings the state back even when the
// call-in was killed.
func (c *cli) keepTerminal() (restore func()) {
	fd := int(c.stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return func() {} // no terminal
	}
	return func() { _ = term.Restore(fd, state) }
}

// rawOutput keeps the caller's terminal from turning the line ends of another one,
// which has made CR LF of them, into CR CR LF, until restore is called. Where stdin is
// the terminal the call-in makes it raw, output included.
func (c *cli) rawOutput() (restore func()) {
	out := int(os.Stdout.Fd())
	if term.IsTerminal(int(c.stdin.Fd())) {
		return func() {}
	}
	if group, err := unix.IoctlGetInt(out, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return func() {} // a change from the background would stop us
	}
	state, err := unix.IoctlGetTermios(out, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	raw := *state
	raw.Oflag &^= unix.OPOST
	if unix.IoctlSetTermios(out, unix.TCSETSW, &raw) != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(out, unix.TCSETSW, state) }
}
