package main

import (
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// keepTerminal saves the state of the caller's terminal, which a call-in may make raw,
// and returns a function that restores it, also if the call-in was killed.
func (c *cli) keepTerminal() (restore func()) {
	fd := int(c.stdin.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return func() {} // not a terminal
	}
	return func() { _ = term.Restore(fd, state) }
}

// rawOutput turns the output processing of the caller's terminal off until restore is
// called: the command's terminal has already made CR LF of each LF, and ours would make
// CR CR LF of it. If the call-in's stdin is the terminal, the call-in makes it raw, output included.
func (c *cli) rawOutput(stdin *os.File) (restore func()) {
	out := int(os.Stdout.Fd())
	if term.IsTerminal(int(stdin.Fd())) {
		return func() {}
	}
	if group, err := unix.IoctlGetInt(out, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return func() {} // the kernel stops a background process that changes its terminal
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
