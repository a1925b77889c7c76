package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"kurma.io/stager/launcher/pods"
)

// lookForMessages is how often the stager's log is looked at for more lines.
const lookForMessages = 50 * time.Millisecond

// StagerLog writes the stager's own log; with follow it goes on until the pod has ended, or ctx.
func (d *Daemon) StagerLog(ctx context.Context, pod *pods.Pod, follow bool, to io.Writer) error {
	own := *pod // the state changes
	log, err := os.Open(own.LogPath())
	if err != nil {
		return fmt.Errorf("read the stager's log of pod %q: %w", own.Plan.Name, err)
	}
	defer log.Close()
	lines := &stagerLogFile{file: log}
	for {
		// In this order: a pod that has ended writes nothing any more.
		ended := !follow || own.Refresh() != nil || own.Ended()
		if _, err := io.Copy(to, lines); err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookForMessages):
		}
	}
}

// stagerLogFile reads the stager's log from its start to its end for now, and again from there. When the stager
// has taken older lines away (supervisor.Messages), it goes on behind what it has read.
type stagerLogFile struct {
	file *os.File
	read int64  // the position in the file
	last []byte // what was read last, up to rememberedBytes
}

// rememberedBytes are enough for several lines: each has its time in it.
const rememberedBytes = 1 << 10

func (l *stagerLogFile) Read(p []byte) (int, error) {
	if err := l.findPosition(); err != nil {
		return 0, err
	}
	n, err := l.file.ReadAt(p, l.read)
	l.read += int64(n)
	l.last = append(l.last, p[:n]...)
	l.last = bytes.Clone(l.last[max(0, len(l.last)-rememberedBytes):])
	return n, err
}

// findPosition looks in a file that has become shorter for what was read last.
func (l *stagerLogFile) findPosition() error {
	info, err := l.file.Stat()
	if err != nil || info.Size() >= l.read {
		return err
	}
	text, err := io.ReadAll(io.NewSectionReader(l.file, 0, info.Size()))
	if err != nil {
		return err
	}
	l.read = 0
	if i := bytes.LastIndex(text, l.last); i >= 0 {
		l.read = int64(i + len(l.last))
	}
	return nil
}
