// Package output carries the output of a pod's apps from their pipes or terminals to
// their logs and to attachments, and the attachments' input to the apps. It uses the
// standard library and x/sys only, and knows neither pods nor containers.
//
// The bytes' way, for one run of an app:
//
//	the app                       this program
//
//	stdout ──► pipe ────────────► capture ─┬─► log (Options.Stdout): one Write for each read
//	                                       └─► backlog ─┬─► sender ──► pipe ──► Attachment.Stdout
//	                                                    └─► sender ──► pipe ──► another's
//	stderr ──► pipe ────────────► capture ─┬─► log (Options.Stderr)
//	                                       └─► backlog ───► sender ──► pipe ──► Attachment.Stderr
//	stdin  ◄── pipe ◄──────────────────────────────────────────────────────── Attachment.Stdin,
//	                                                                          written by its holder
//	or, with a terminal:
//
//	slave  ──► master ──────────► capture ─┬─► log (Options.Stdout)
//	                                       └─► backlog ───► sender ──► pipe ──► Attachment.Stdout
//	slave  ◄── master ◄──────────────────────── typeIn ◄── pipe ◄────────────── Attachment.Stdin
//
// Who waits for whom: an app waits for its log, once its pipe is full. It never waits for an
// attachment, nor does its log: what an attachment has not read yet stays in the backlog, which
// all attachments share, and an attachment that reads too slowly is dropped (ErrDropped).
//
// Goroutines: one for each capture, which reads, writes to the log and appends to the backlog;
// one for each sender, which alone waits for its reader; one for a terminal's input of each
// attachment. A Collector has one more, which wakes idle captures when there is something to read.
package output

import (
	"errors"
	"io"
	"os"
	"sync"
)

var (
	// ErrDropped means that an attachment read the app's output too slowly, or did not
	// read what was left after the app's end: an app never waits for an attachment.
	ErrDropped = errors.New("dropped: output was not read in time")
	// ErrEnded means that a run has ended, so that nothing can be attached to it.
	ErrEnded = errors.New("the run has ended")
)

// Collector has what the streams of all apps share: the buffers of reads, the poller, and the bound of the backlogs.
// Its methods may be called by several goroutines at once.
type Collector struct {
	buffers  *sync.Pool // of *[readSize]byte. Between reads no capture holds one: an app that writes nothing costs none
	poller   *poller
	backlogs *backlogs
}

// NewCollector starts a Collector, which has a thread until Close.
func NewCollector() *Collector {
	buffers := &sync.Pool{New: func() any { return new([readSize]byte) }}
	return &Collector{buffers: buffers, poller: newPoller(), backlogs: newBacklogs()}
}

// Close ends the Collector. Every Streams must have been finished. It is called once.
func (c *Collector) Close() { c.poller.close() }

// Options say what the streams of one run are.
type Options struct {
	// Stdout and Stderr are the log, nil for none. Each Write gets the bytes of one
	// read, at most 64 KiB, and must not keep them. Writes to the two may be concurrent.
	Stdout, Stderr io.Writer

	// LogError, where not nil, is called with the first error of a series of Writes to one
	// of them. The run goes on without a log rather than not at all. Calls may be concurrent.
	LogError func(error)

	// Terminal gives the run a terminal instead of the three streams below; its output
	// goes to Stdout.
	Terminal bool

	// OpenStdin gives the run a pipe as stdin that stays open and that
	// attachments write to, instead of end of file.
	OpenStdin bool

	// Stdin, OutFile and ErrFile, where not nil, take the place of the pipe or /dev/null that stdin, stdout or stderr
	// would be; what goes there is neither logged nor sent to attachments. A pipe or a socket becomes the process's own
	// descriptor. Any other file is copied, through a pipe; a file that two streams share gets what is written in its
	// order. Streams closes none of them.
	Stdin, OutFile, ErrFile *os.File
}
