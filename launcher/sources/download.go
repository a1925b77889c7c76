package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"kurma.io/stager/launcher/images"

	"golang.org/x/sys/unix"
)

// defaultAttempts is how often a download is tried, each time where it has stopped. The waits
// between them double, from a second.
const defaultAttempts = 5

// download is a file of a server.
type download struct {
	client *http.Client
	url    string
	what   string // for people
	digest string // "sha256:HEX" that the file must have; "" for any
	size   int64  // that the file must have; -1 for any

	key       string      // of the downloads that are the same one; "" for the URL and the digest
	unneeded  func() bool // is asked before the download; nil for false
	signature bool        // the file is one: at most maxSignature bytes
	unchecked bool        // the file's digest and size are compared by the caller

	report func(done, size int64) // of the progress; may be nil
}

// tooLarge returns an error if that many bytes of the file are too many.
func (f *Fetcher) tooLarge(d download, bytes int64) error {
	switch {
	case d.signature && bytes > maxSignature:
		return fmt.Errorf("%d bytes or more: larger than a signature may be (%d)", bytes, maxSignature)
	case bytes > f.MaxSize:
		return fmt.Errorf("%d bytes or more: larger than maxImageSize in the configuration (%d)", bytes, f.MaxSize)
	}
	return nil
}

// statusError is an answer of a server that is not the file.
type statusError struct {
	code   int
	status string
}

func (e statusError) Error() string { return "the server answers " + e.status }

// brokenError says that a response has ended early, over whatever protocol.
type brokenError struct{ error }

// Unwrap implements the interface of package errors.
func (e brokenError) Unwrap() error { return e.error }

// errChanged says that the server has another file now than before.
var errChanged = errors.New("the file on the server has changed meanwhile")

// errUnneeded says that a download was not needed any more.
var errUnneeded = errors.New("another import has brought the file")

// get downloads a file, resuming an earlier download, and returns it open at its start. Its name is locked; done
// removes it. While another process downloads the same file, get waits, and then resumes the download if it is still
// needed. If the other's server is too slow, get downloads the file itself.
func (f *Fetcher) get(ctx context.Context, d download) (file *os.File, done func(), err error) {
	if err := f.tooLarge(d, d.size); err != nil {
		return nil, nil, fmt.Errorf("download %s: %w", d.what, err)
	}
	file, err = f.lockPart(ctx, cmp.Or(d.key, d.url+"\n"+d.digest), d.size)
	shared := !errors.Is(err, errStalled)
	if !shared {
		file, err = os.CreateTemp(f.Cache, ".part-")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("download %s: %w", d.what, err)
	}
	if d.unneeded != nil && d.unneeded() {
		removePart(file)
		return nil, nil, errUnneeded
	}
	if d.report == nil {
		d.report = func(int64, int64) {}
	}
	if err = f.retry(ctx, d, file); err == nil && !d.unchecked {
		err = check(ctx, d, file)
	}
	if err != nil {
		if !shared || !temporary(ctx, err) {
			_ = os.Remove(file.Name())
		}
		_ = file.Close()
		return nil, nil, fmt.Errorf("download %s: %w", d.what, err)
	}
	return file, func() { removePart(file) }, nil
}

// temporary reports whether another attempt may succeed where this one has failed.
func temporary(ctx context.Context, err error) bool {
	var status statusError
	var dns *net.DNSError
	switch {
	case ctx.Err() != nil:
		return false // an import that is interrupted leaves nothing
	case errors.As(err, &status):
		return status.code >= 500 || status.code == http.StatusTooManyRequests || status.code == http.StatusRequestTimeout
	case errors.As(err, &dns):
		return dns.IsTemporary
	case errors.Is(err, unix.ECONNREFUSED):
		return false
	}
	var operation *net.OpError
	var broken brokenError
	return errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, errChanged) || errors.As(err, &operation) || os.IsTimeout(err)
}

// retry resumes a download until it is whole, or has failed for good or too often. The pause doubles each time.
func (f *Fetcher) retry(ctx context.Context, d download, file *os.File) error {
	last := cmp.Or(f.attempts, defaultAttempts) - 1
	for try := 0; ; try++ {
		if err := f.resume(ctx, d, file); err == nil || try == last || !temporary(ctx, err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second << try):
		}
	}
}

// resume asks for the missing part of a file and appends it.
func (f *Fetcher) resume(ctx context.Context, d download, file *os.File) error {
	have, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if d.size == 0 {
		return nil
	}
	if have == d.size { // by another import, perhaps with other credentials: the server lets us have the last byte
		if have--; file.Truncate(have) != nil {
			return restart(file, errChanged)
		}
	}
	request, err := requestRest(ctx, d, file, have)
	if err != nil {
		return err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if have, err = prepareFor(response, file, have); err != nil {
		return err
	}
	return f.append(d, file, response, have)
}

// prepareFor makes the part in file, of have bytes, fit the server's response, and returns its new size.
func prepareFor(response *http.Response, file *os.File, have int64) (int64, error) {
	switch {
	case response.StatusCode == http.StatusPartialContent && have > 0:
		if !strings.HasPrefix(response.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", have)) {
			return 0, restart(file, errors.New("the server sends a different range than requested"))
		}
		return have, nil
	case response.StatusCode == http.StatusOK:
		if err := restart(file, nil); err != nil {
			return 0, err
		}
		setEntityTag(file, response.Header.Get("ETag"))
		return 0, nil
	case response.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return 0, restart(file, errChanged)
	default:
		return 0, statusError{response.StatusCode, response.Status}
	}
}

// requestRest asks for a file from byte have on, if a digest or tag shows that the two parts belong together; else for
// all of it.
func requestRest(ctx context.Context, d download, file *os.File, have int64) (*http.Request, error) {
	request, err := http.NewRequestWithContext(withLargeBody(ctx), http.MethodGet, d.url, nil)
	if err != nil {
		return nil, err
	}
	tag := entityTag(file)
	if have > 0 && (d.digest != "" || tag != "") {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		if d.digest == "" {
			request.Header.Set("If-Range", tag)
		}
	}
	return request, nil
}

// tagAttribute keeps the version that the server gave a file at the start of its download.
const tagAttribute = "user.kurma.etag"

// entityTag returns the tag that setEntityTag has set, "" for none.
func entityTag(file *os.File) string {
	value := make([]byte, 1024)
	n, err := unix.Fgetxattr(int(file.Fd()), tagAttribute, value)
	if err != nil {
		return ""
	}
	return string(value[:n])
}

// setEntityTag keeps a strong entity tag (RFC 9110, 8.8.3). Where the file system keeps no
// attributes, a download begins again.
func setEntityTag(file *os.File, tag string) {
	if !strings.HasPrefix(tag, `"`) || unix.Fsetxattr(int(file.Fd()), tagAttribute, []byte(tag), 0) != nil {
		_ = unix.Fremovexattr(int(file.Fd()), tagAttribute) // there may be none
	}
}

// restart empties the file and returns the error.
func restart(file *os.File, reason error) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return reason
}

// append writes a response's body after the bytes that the file has.
func (f *Fetcher) append(d download, file *os.File, response *http.Response, have int64) error {
	size := int64(-1)
	if response.ContentLength >= 0 {
		size = have + response.ContentLength
	}
	if err := f.tooLarge(d, size); err != nil {
		return err
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := response.Body.Read(buffer)
		if _, writeErr := file.Write(buffer[:n]); writeErr != nil {
			return writeErr
		}
		have += int64(n)
		if err := f.tooLarge(d, have); err != nil {
			return err
		}
		d.report(have, max(size, have))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return brokenError{err}
		}
	}
	if size >= 0 && have < size {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// check compares a complete file with its known size and digest, and goes to its start.
func check(ctx context.Context, d download, file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := newDigester(images.Until(ctx, file)).check(blob{d.digest, d.size}); err != nil {
		return err
	}
	_, err := file.Seek(0, io.SeekStart)
	return err
}
