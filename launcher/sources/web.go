package sources

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"

	"kurma.io/stager/launcher/images"
)

// maxSignature is the largest signature of an ACI that is downloaded.
const maxSignature = 256 << 10

// web imports the ACI at an address, and the signature beside it. It also returns the address as errors may
// show it, without a password.
func (f *Fetcher) web(ctx context.Context, address string) (string, *images.Image, error) {
	parsed, err := url.Parse(address)
	var wrong *url.Error
	switch {
	case errors.As(err, &wrong):
		return "that address", nil, wrong.Err // the rest of the error is the address
	case parsed.Hostname() == "":
		return parsed.Redacted(), nil, errors.New("the address has no host")
	}
	image, err := f.pair(ctx, parsed)
	return parsed.Redacted(), image, err
}

// pair downloads an ACI and its signature, and imports them.
func (f *Fetcher) pair(ctx context.Context, parsed *url.URL) (*images.Image, error) {
	signature := *parsed
	signature.Path += ".asc"
	signature.RawPath = ""
	client := &http.Client{Transport: f.transport(parsed.Hostname(), parsed.Scheme == "http")}
	defer client.CloseIdleConnections()
	what := path.Base(parsed.Path)
	asc, ascDone, err := f.get(ctx, download{
		client: client, url: signature.String(), what: what + ".asc", size: -1,
		signature: true,
	})
	var status statusError
	unsigned := errors.As(err, &status) && (status.code == http.StatusNotFound || status.code == http.StatusForbidden ||
		status.code == http.StatusGone)
	if err != nil && !unsigned {
		return nil, err
	}
	if asc != nil {
		defer ascDone()
	}
	report := f.progress(what)
	defer report(1, 1)
	aci, done, err := f.get(ctx, download{client: client, url: parsed.String(), what: what, size: -1, report: report})
	if err != nil {
		return nil, err
	}
	defer done()
	return f.importPair(ctx, aci, asc)
}

// importPair imports an ACI and its signature, which may be nil, from files of any name.
func (f *Fetcher) importPair(ctx context.Context, aci, asc *os.File) (*images.Image, error) {
	dir, err := os.MkdirTemp(f.Cache, ".import-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the cache, which can be deleted
	name := filepath.Join(dir, "image.aci")
	if err := os.Link(aci.Name(), name); err != nil {
		return nil, err
	}
	if asc != nil {
		if err := os.Link(asc.Name(), name+".asc"); err != nil {
			return nil, err
		}
	}
	image, err := f.Store.Import(ctx, name, f.Ring, nil)
	if err != nil {
		return nil, errors.Unwrap(err) // of the name, which is nobody's
	}
	return image, nil
}
