package sources

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Limits of a server's answers.
const (
	maxHeaders   = 64 << 10 // bytes of the headers of an answer; redirects with long addresses have some KiB
	maxRedirects = 10       // one after the other, as net/http has it for a client without a CheckRedirect
)

// boundedTransport is the transport of every request for a source. Whoever names the source chooses the server, and
// the server chooses by its redirects and token challenges which others are asked. So the limits are here, below all
// libraries:
//
//	time       a connection and an answer's headers must come in time, a body at the pace
//	memory     headers, redirects, and bodies, but of a request of withLargeBody
//	addresses  a server on another host than the source's is neither on this machine nor on its link, by whatever name,
//	           and no literal private address
//	secrets    without leave, neither the source's host nor credentials for another go over plain HTTP
type boundedTransport struct {
	near    *http.Transport // to the source's host
	far     *http.Transport // to other hosts
	proxied *http.Transport // to other hosts by a proxy, which has its own rules of addresses
	host    string          // of the source, without its port
	// plainHTTP lets the source's host be asked by HTTP, also with credentials.
	plainHTTP bool
	pace      pace
}

// transport returns a new transport for a source on a host.
func (f *Fetcher) transport(host string, plainHTTP bool) *boundedTransport {
	return &boundedTransport{
		near: newTransport(nil), far: newTransport(refuseLocal), proxied: newTransport(nil), host: host,
		plainHTTP: plainHTTP, pace: cmp.Or(f.pace, minimumPace()),
	}
}

// use has the requests use an endpoint's settings. Other hosts are known by its authorities too, but none of them sees
// its certificates, or remains unverified.
func (t *boundedTransport) use(e endpoint) {
	if e.timeout > 0 {
		t.near.DialContext = (&net.Dialer{Timeout: e.timeout, KeepAlive: 30 * time.Second}).DialContext
	}
	if e.tls != nil {
		t.near.TLSClientConfig = e.tls
		t.far.TLSClientConfig = &tls.Config{RootCAs: e.tls.RootCAs}
		t.proxied.TLSClientConfig = &tls.Config{RootCAs: e.tls.RootCAs}
	}
}

// newTransport returns a transport that connects to the addresses that control lets it connect to; nil for all.
func newTransport(control func(network, address string, c syscall.RawConn) error) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: control}).DialContext
	t.ResponseHeaderTimeout = time.Minute
	t.MaxResponseHeaderBytes = maxHeaders
	t.DisableCompression = true // a digest is of the file as it is, and so are sizes and ranges
	return t
}

// CloseIdleConnections does as http.Transport's.
func (t *boundedTransport) CloseIdleConnections() {
	t.near.CloseIdleConnections()
	t.far.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (t *boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	carrier, err := t.carrier(request)
	if err != nil {
		if request.Body != nil {
			_ = request.Body.Close() // of a request that is not sent
		}
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(request.Context())
	response, err := carrier.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel(err)
		return nil, err
	}
	response.Body = &pacedBody{ReadCloser: response.Body, ctx: ctx, cancel: cancel, pace: t.pace}
	if request.Context().Value(largeBody{}) == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: maxConfig}
	}
	return response, nil
}

// carrier returns the transport for a request, or an error if the request must not be sent.
func (t *boundedTransport) carrier(request *http.Request) (http.RoundTripper, error) {
	host := request.URL.Hostname()
	near := host == t.host
	secret := near || request.Header.Get("Authorization") != "" || request.Body != nil && request.Body != http.NoBody
	switch {
	case redirects(request) > maxRedirects:
		return nil, fmt.Errorf("more than %d redirects", maxRedirects)
	case request.URL.Scheme == "http" && secret && !t.plainHTTP:
		return nil, fmt.Errorf("%s would be asked by plain HTTP, which is for registries that insecureRegistries in the "+
			"configuration lists", request.URL.Host)
	case near:
		return t.near, nil
	}
	if address, err := netip.ParseAddr(host); err == nil && (isLocal(address) || address.Unmap().IsPrivate()) {
		return nil, localError(host)
	}
	if proxy, err := t.near.Proxy(request); err == nil && proxy != nil {
		return t.proxied, nil // the address is the proxy's
	}
	return t.far, nil
}

// redirects returns how many redirects have led to a request.
func redirects(request *http.Request) (n int) {
	for from := request.Response; from != nil && from.Request != nil; from = from.Request.Response {
		n++
	}
	return n
}

// localError is a host that a server on another host has led to.
type localError string

func (e localError) Error() string {
	return fmt.Sprintf("a server on another host leads to %s, which is private or this machine's", string(e))
}

// refuseLocal is a net.Dialer's Control that connects to no address of this machine or its link. The dialer has looked
// up a host's name before, so that no name evades it.
func refuseLocal(_, address string, _ syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err != nil || isLocal(to.Addr()) {
		return localError(address)
	}
	return nil
}

// isLocal reports whether an address is of this machine or of its link, such as that of a cloud's metadata.
func isLocal(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsUnspecified() || address.IsMulticast()
}

// isLoopback reports whether a host is this machine by its name alone (RFC 6761, 6.3).
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// largeBody is the key of withLargeBody.
type largeBody struct{}

// withLargeBody is the context of a request by a caller that limits what it reads of the answer.
func withLargeBody(ctx context.Context) context.Context {
	return context.WithValue(ctx, largeBody{}, true)
}

// boundedBody is the body of an answer that may have so many bytes.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// errLargeAnswer says that a boundedBody has more bytes than it may have.
var errLargeAnswer = errors.New("the server's answer is too large")

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", errLargeAnswer, maxConfig)
	}
	return n, err
}
