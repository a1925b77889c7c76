package boot

import (
	"testing"

	"kurma.io/stager/crilog"
)

// closable is a log that says when it is closed.
type closable struct{ closed chan struct{} }

func (closable) Append(crilog.Stream, []byte) {}
func (closable) EndLines()                    {}
func (c closable) Close() error               { close(c.closed); return nil }

// A log that opens only after its app's start has failed for that is closed, and does not become the app's.
func TestALogThatOpensTooLateIsClosed(t *testing.T) {
	opens, late := make(chan struct{}), closable{make(chan struct{})}
	log := &reopenedLog{open: func() (appLog, error) { <-opens; return late, nil }}
	if err := log.reopen(); err == nil {
		t.Error("no error of a log that does not open")
	}
	close(opens)
	<-late.closed
	if log.appLog.Load() != nil {
		t.Error("the log is the app's")
	}
	prompt := &reopenedLog{open: func() (appLog, error) { return late, nil }}
	if err := prompt.reopen(); err != nil || *prompt.appLog.Load() != appLog(late) {
		t.Errorf("a log that opens: %v", err)
	}
}
