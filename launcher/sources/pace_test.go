package sources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"
)

// slowly answers with a byte every millisecond, until the client ends the connection.
func slowly(out http.ResponseWriter, in *http.Request) {
	for tick := time.NewTicker(time.Millisecond); ; {
		if _, err := out.Write([]byte("{")); err != nil {
			return
		}
		out.(http.Flusher).Flush()
		select {
		case <-in.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// Whatever is asked of a server that sends a byte now and then, it ends.
func TestADownloadAByteAtATimeEnds(t *testing.T) {
	surroundings.Root(t)
	for name, slow := range map[string]string{"image": "/image.aci", "signature": "/image.aci.asc", "manifest": "/v2/app/manifests/latest"} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
				switch {
				case in.URL.Path == slow && in.Method == http.MethodGet:
					slowly(out, in)
				case in.URL.Path == "/v2/": // a registry
				default:
					http.NotFound(out, in)
				}
			}))
			defer server.Close() // which waits for what is being answered
			f := newFetcher(t)
			f.attempts, f.pace = 1, pace{1 << 20, 50 * time.Millisecond}
			source := server.URL + "/image.aci"
			if strings.HasPrefix(slow, "/v2") {
				source = "docker://" + strings.TrimPrefix(server.URL, "http://") + "/app"
			}
			_, err := f.Import(context.Background(), source)
			if slow := (slowError{}); !errors.As(err, &slow) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// What is sent in time begins a new period.
func TestAPeriodEndsWithItsBytes(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	b := &pacedBody{ReadCloser: io.NopCloser(strings.NewReader("abcdef")), ctx: ctx, cancel: cancel, pace: pace{4, time.Hour}, waited: time.Minute}
	for _, read := range []int64{3, 0} {
		if _, err := b.Read(make([]byte, 3)); err != nil || b.read != read || (b.waited >= time.Minute) != (read > 0) {
			t.Errorf("%v: %d bytes in %v", err, b.read, b.waited)
		}
	}
}
