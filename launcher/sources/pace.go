package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// pace is the least that a server must send: so many bytes, or its whole answer, in each period in which somebody
// waits for them. A server that sends a byte a second would otherwise hold a command for as long as it likes.
type pace struct {
	bytes  int64
	period time.Duration
}

// minimumPace is far below what people wait for: 1 KiB a second.
func minimumPace() pace { return pace{60 << 10, time.Minute} }

// slowError says that a server keeps less than a pace.
type slowError struct{ pace pace }

func (e slowError) Error() string {
	return fmt.Sprintf("the server sends less than %d bytes in %v", e.pace.bytes, e.pace.period)
}

// Timeout makes it an error after which another attempt may succeed (os.IsTimeout).
func (slowError) Timeout() bool { return true }

// pacedBody is the body of an answer.
type pacedBody struct {
	io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	pace   pace

	read   int64         // since the period began
	waited time.Duration // in Read since then
}

// Read implements io.Reader. It counts only the time of waiting for the server, not the caller's.
func (b *pacedBody) Read(p []byte) (int, error) {
	slow, begin := slowError{b.pace}, time.Now()
	late := time.AfterFunc(b.pace.period-b.waited, func() { b.cancel(slow) })
	n, err := b.ReadCloser.Read(p)
	late.Stop()
	b.read += int64(n)
	b.waited += time.Since(begin)
	if b.read >= b.pace.bytes {
		b.read, b.waited = 0, 0
	}
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(context.Cause(b.ctx), slow) {
		err = slow
	}
	return n, err
}

// Close implements io.Closer.
func (b *pacedBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}
