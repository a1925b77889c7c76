package sources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/launcher/images"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// registry imports an image of a registry.
func (f *Fetcher) registry(ctx context.Context, text string) ([]*images.Image, error) {
	ref, err := f.parse(text)
	if err != nil {
		return nil, err
	}
	pull, resolve, err := f.endpoints(ref)
	if err != nil {
		return nil, err
	}
	asked, err := f.byDigest(ctx, ref, pull, resolve)
	if err != nil {
		return nil, err
	}
	return firstAnswer(ctx, ref, pull, func(e endpoint) ([]*images.Image, error) {
		return f.registryAt(ctx, e, asked, reference{cmp.Or(f.Name, ref.Context().Name()), ref.Identifier()}, text)
	})
}

// registryAt imports an image from an endpoint. It is called what as says; text is its source.
func (f *Fetcher) registryAt(
	ctx context.Context, e endpoint, ref name.Reference, as reference, text string,
) ([]*images.Image, error) {
	r, err := f.connect(ctx, e, ref)
	if err != nil {
		return nil, err
	}
	defer r.client.CloseIdleConnections()
	manifest, err := f.manifest(ctx, r, ref)
	if err != nil {
		return nil, err
	}
	report := f.progress(text)
	defer report(1, 1)
	open := func(what, digest string, size int64) (*os.File, func(), error) {
		return f.get(ctx, r.download(what, digest, size))
	}
	config := &keptDocument{ctx: ctx, open: open, memory: f.Memory}
	defer config.close()
	p, err := partsOf(manifest, config.reopen, func(d v1.Descriptor) layer {
		one := r.download(shortDigest(d.Digest.String()), d.Digest.String(), d.Size)
		one.unchecked = true // layer.file is checked while the layer is read
		one.report = ofAll(manifest.Layers, one.digest, report)
		return layer{
			file: blob{one.digest, one.size}, from: one.key, granted: func() bool { return r.grants(ctx, one.url) },
			open: func(unneeded func() bool) (*os.File, func(), error) {
				one.unneeded = unneeded
				return f.get(ctx, one)
			},
		}
	})
	if err != nil {
		return nil, err
	}
	return f.assemble(ctx, p, as)
}

// download is that of a blob. A registry has one blob of a digest, whatever the repositories are called.
func (r *repository) download(what, digest string, size int64) download {
	return download{
		client: r.client, url: r.url("blobs", digest), key: r.RegistryStr() + "\n" + digest,
		what: what, digest: digest, size: size,
	}
}

// grants reports whether the registry lets the client have a blob.
func (r *repository) grants(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return false
	}
	response, err := r.client.Do(request)
	if err != nil {
		return false // a download says why
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (f *Fetcher) keychain() authn.Keychain {
	if f.Keychain == nil {
		return savedCredentials()
	}
	return f.Keychain
}

// Digest asks a registry what [HOST/]NAME[:TAG|@DIGEST] means now, and returns the digest of the image or, if the
// registry has the image for several machines, of its index. The registry checks the credentials as for the image
// itself. Docker Hub counts a GET of a manifest as a pull, and no HEAD. A GET follows if HEAD fails, because some
// registries do not answer HEAD, and only GET has an error's text.
func (f *Fetcher) Digest(ctx context.Context, text string) (string, error) {
	ref, err := f.parse(text)
	if err != nil {
		return "", err
	}
	_, resolve, err := f.endpoints(ref)
	if err != nil {
		return "", err
	}
	return firstAnswer(ctx, ref, resolve, func(e endpoint) (string, error) { return f.digestAt(ctx, e, ref) })
}

// ofAll returns a function that reports the progress of a layer as that of all layers. They are whole when the last of
// them is converted, not yet when it is downloaded.
func ofAll(layers []v1.Descriptor, digest string, report func(done, size int64)) func(done, size int64) {
	var before, all int64
	found := false
	for _, layer := range layers {
		found = found || layer.Digest.String() == digest
		if !found {
			before += layer.Size
		}
		all += layer.Size
	}
	if !found { // the configuration
		return nil
	}
	return func(done, _ int64) { report(min(before+done, all-1), all) }
}

// parse parses [HOST/]NAME[:TAG|@DIGEST].
func (f *Fetcher) parse(text string) (name.Reference, error) {
	ref, err := name.ParseReference(text)
	if err != nil && strings.Contains(text, "@") {
		_, err = name.NewDigest(text) // which says why
	} else if err != nil {
		_, err = name.NewTag(text)
	}
	if err != nil {
		return nil, err
	}
	if slices.Contains(f.Insecure, ref.Context().RegistryStr()) {
		return name.ParseReference(text, name.Insecure)
	}
	return ref, nil
}

// repository is a repository of a registry, and a client that the registry lets read it.
type repository struct {
	name.Repository
	client *http.Client
}

// connect finds out how an endpoint is asked for an image, and gets a token for it. The caller closes the client's idle
// connections.
func (f *Fetcher) connect(ctx context.Context, e endpoint, ref name.Reference) (*repository, error) {
	in, err := e.repositoryAt(ref.Context())
	if err != nil {
		return nil, err
	}
	auth, err := f.credentials(ctx, e, in)
	if err != nil {
		return nil, err
	}
	// The library would take plain HTTP also for private addresses and *.local; the transport does not.
	host := (&url.URL{Host: in.RegistryStr()}).Hostname()
	plain := e.scheme == "http" || e.scheme == "" && (isLoopback(host) || slices.Contains(f.Insecure, in.RegistryStr()))
	base := f.transport(host, plain)
	base.use(e)
	attempts := 1 // the next endpoint is asked instead
	if e.last {
		attempts = cmp.Or(f.attempts, 3)
	}
	r := &repository{Repository: in}
	authorize := func(challenges []string) (http.RoundTripper, error) {
		return transport.NewWithContext(ctx, in.Registry, auth, lateChallenge{
			RoundTripper: tokenAnswers{endpointTransport{
				transport.NewUserAgent(retrying{base, retries(ctx, base, attempts)}, "kurma-launcher"), e, in,
			}},
			manifest:   func(scheme string) string { return r.address(scheme, "manifests", ref.Identifier()) },
			challenges: challenges,
		}, []string{in.Scope(transport.PullScope)})
	}
	authorized, err := authorize(nil)
	if err != nil {
		base.CloseIdleConnections()
		return nil, answerError(err)
	}
	reauthorized := &laterChallenge{current: authorized, host: in.RegistryStr(), authorize: authorize}
	r.client = &http.Client{Transport: onBase{reauthorized, base}}
	return r, nil
}

// onBase is a transport whose connections are those of a base.
type onBase struct {
	http.RoundTripper
	base *boundedTransport
}

// CloseIdleConnections is called by http.Client.
func (o onBase) CloseIdleConnections() { o.base.CloseIdleConnections() }

// retrying tries a request again after a passing failure, but for a request of withLargeBody: whoever makes one tries
// again where it has stopped.
type retrying struct {
	*boundedTransport
	again http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t retrying) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Context().Value(largeBody{}) != nil {
		return t.boundedTransport.RoundTrip(request)
	}
	return t.again.RoundTrip(request)
}

// retries returns a transport that tries each request so many times.
func retries(ctx context.Context, base http.RoundTripper, attempts int) http.RoundTripper {
	return transport.NewRetry(base,
		transport.WithRetryBackoff(transport.Backoff{Duration: time.Second, Factor: 3, Steps: attempts}),
		transport.WithRetryStatusCodes(http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout),
		transport.WithRetryPredicate(func(err error) bool {
			var answer *transport.Error
			return errors.As(err, &answer) && answer.Temporary() || temporary(ctx, err)
		}))
}

// url returns the address of a manifest or blob. The client corrects its scheme.
func (r *repository) url(kind, which string) string { return r.address(r.Scheme(), kind, which) }

func (r *repository) address(scheme, kind, which string) string {
	return fmt.Sprintf("%s://%s/v2/%s/%s/%s", scheme, r.RegistryStr(), r.RepositoryStr(), kind, which)
}

// answerError returns the error of a request to a registry without what the answer has, unless that is in the form of a
// registry's errors: another server may have answered.
func answerError(err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) || len(answer.Errors) > 0 {
		return err
	}
	status := statusError{answer.StatusCode, fmt.Sprint(answer.StatusCode, " ", http.StatusText(answer.StatusCode))}
	if answer.Request == nil {
		return status
	}
	asked := *answer.Request.URL
	asked.User, asked.RawQuery = nil, "" // which may have secrets
	return fmt.Errorf("%s %s: %w", answer.Request.Method, &asked, status)
}
