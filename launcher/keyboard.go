package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"kurma.io/stager/launcher/daemon"

	"golang.org/x/term"
)

// The detach keys, as podman's users know them, typed one after the other.
const (
	firstDetachKey  = 'p' & 0x1f // ctrl-p
	secondDetachKey = 'q' & 0x1f // ctrl-q
)

// keyboard is the caller's terminal as the stdin of a call-in. The launcher passes the typed bytes through a pipe and
// looks for the detach keys. The call-in does not see a terminal there, so the launcher sets the terminal to raw mode.
type keyboard struct {
	read  *os.File        // the call-in's stdin
	left  context.Context // ends when the detach keys are typed
	state *term.State
	fd    int
}

// hasKeyboard reports whether a person can type into a call-in.
func (c *cli) hasKeyboard() bool { return term.IsTerminal(int(c.stdin.Fd())) }

// openKeyboard begins to read the terminal, and says what the detach keys do. Only these end left, which has the values
// of ctx.
func (c *cli) openKeyboard(ctx context.Context, detach string) (*keyboard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fd := int(c.stdin.Fd())
	state, err := term.MakeRaw(fd)
	if err != nil {
		_, _ = read.Close(), write.Close()
		return nil, fmt.Errorf("make the terminal raw: %w", err)
	}
	// Only a raw terminal passes ctrl-q on (termios(3), IXON). It needs a carriage return at the end of a line, which say
	// would make visible.
	if isTerminal(c.stderr) {
		fmt.Fprintf(c.stderr, "launcher: ctrl-p ctrl-q %s\r\n", detach)
	}
	left, leave := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		if passKeys(c.stdin, write) {
			leave()
		}
		_ = write.Close()
	}()
	return &keyboard{read: read, left: left, state: state, fd: fd}, nil
}

// close restores the terminal. The reader of the terminal stays until the next key, or the
// program's end.
func (k *keyboard) close() {
	_ = term.Restore(k.fd, k.state) // it fails only for a terminal that has gone
	_ = k.read.Close()
}

// hint tells a person at a terminal what can be typed.
func (c *cli) hint(text string) {
	if isTerminal(c.stderr) {
		c.say(text)
	}
}

// passKeys copies what is typed until the end of file, or the detach keys: then it returns true. The
// first of them waits for the next key.
func passKeys(from io.Reader, to io.Writer) (left bool) {
	buf := make([]byte, 4096)
	waiting := false
	for {
		n, err := from.Read(buf)
		var typed []byte
		for _, key := range buf[:n] {
			if waiting && key == secondDetachKey {
				_, _ = to.Write(typed) // what was typed before
				return true
			}
			if waiting {
				typed = append(typed, firstDetachKey)
			}
			if waiting = key == firstDetachKey; !waiting {
				typed = append(typed, key)
			}
		}
		if _, writeErr := to.Write(typed); err != nil || writeErr != nil {
			return false
		}
	}
}

// callByKeyboard makes a call with the keyboard as stdin. detach says what the detach keys do, which end the call:
// then left is true.
func (c *cli) callByKeyboard(ctx context.Context, detach string, call calling) (code int, left bool, err error) {
	k, err := c.openKeyboard(ctx, detach)
	if err != nil {
		return 0, false, err
	}
	defer k.close()
	signals, stop := callSignals()
	defer stop()
	code, err = call(k.left, daemon.Caller{Stdio: [3]*os.File{k.read, os.Stdout, os.Stderr}, Signals: signals})
	if k.left.Err() != nil {
		return code, true, nil
	}
	return code, false, err
}
