package images

import (
	"context"
	"io"
	"time"
)

// meter counts the bytes read and reports them from time to time.
type meter struct {
	ctx        context.Context // reading ends with it
	in         io.Reader
	done, size int64
	told       time.Time
	report     func(done, size int64)
}

// Until returns a reader of in that ends with ctx, whose cause is its error then.
func Until(ctx context.Context, in io.Reader) io.Reader { return &meter{ctx: ctx, in: in} }

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, context.Cause(m.ctx)
	}
	n, err := m.in.Read(p)
	m.done += int64(n)
	if m.report != nil && (err != nil || time.Since(m.told) > 100*time.Millisecond) {
		m.told = time.Now()
		m.report(m.done, m.size)
	}
	return n, err
}
