package main

import (
	"fmt"
	"sync"
	"time"

	"kurma.io/stager/internal/plaintext"
)

// patience is how long a person waits without a word.
const patience = time.Second

// eraseLine returns to the beginning of a terminal's line and erases it.
const eraseLine = "\r\x1b[K"

// busy names the work to a person at a terminal, from the first second on, until done is
// called: before anything else is printed. It may be called more than once. Elsewhere busy does nothing.
func (c *cli) busy(what string) (done func()) {
	if !isTerminal(c.stderr) || c.json {
		return func() {}
	}
	return c.busyEvery(patience, what)
}

func (c *cli) busyEvery(tick time.Duration, what string) (done func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticks := time.NewTicker(tick)
		defer ticks.Stop()
		begin, shown := time.Now(), false
		for {
			select {
			case <-ticks.C:
				fmt.Fprintf(c.stderr, "%slauncher: %s … %d s", eraseLine, plaintext.Line(what), int(time.Since(begin).Seconds()))
				shown = true
			case <-stop:
				if shown {
					fmt.Fprint(c.stderr, eraseLine)
				}
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-stopped
	})
}

// progress reports on a terminal, from the first second on, how much of a file is read; elsewhere it
// is nil.
func (c *cli) progress(what string) func(done, size int64) {
	if !isTerminal(c.stderr) || c.json {
		return nil
	}
	return c.progressAfter(patience, what)
}

func (c *cli) progressAfter(quiet time.Duration, what string) func(done, size int64) {
	begin, printed := time.Now(), int64(-1)
	return func(done, size int64) {
		percent := 100 * done / max(size, 1)
		if percent == printed || time.Since(begin) < quiet {
			return
		}
		if done < size {
			fmt.Fprintf(c.stderr, "%slauncher: import %s … %d %%", eraseLine, plaintext.Line(what), percent)
			printed = percent
		} else if printed >= 0 {
			fmt.Fprint(c.stderr, eraseLine)
			printed = percent
		}
	}
}
