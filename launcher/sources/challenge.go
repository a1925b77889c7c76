package sources

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// lateChallenge asks for the head of the manifest when a registry answers a ping of /v2/ without a token challenge: if
// only the head is answered by a challenge, the challenge counts as the answer to the ping.
type lateChallenge struct {
	http.RoundTripper
	manifest   func(scheme string) string
	challenges []string // of a later answer, which count as the ping's; nil for none
}

// RoundTrip implements http.RoundTripper.
func (t lateChallenge) RoundTrip(request *http.Request) (*http.Response, error) {
	pong, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		preferToken(pong.Header)
	}
	if err != nil || request.URL.Path != "/v2/" || pong.StatusCode != http.StatusOK || request.Response != nil {
		return pong, err
	}
	if t.challenges != nil {
		pong.StatusCode, pong.Status = http.StatusUnauthorized, "401 Unauthorized"
		pong.Header[challengeKey] = t.challenges
		return pong, nil
	}
	head, err := http.NewRequestWithContext(request.Context(), http.MethodHead, t.manifest(request.URL.Scheme), nil)
	if err != nil {
		return pong, nil //nolint:nilerr // the request for the manifest reports it
	}
	head.Header.Set("Accept", acceptedManifests())
	late, err := t.RoundTripper.RoundTrip(head)
	if err != nil {
		return pong, nil //nolint:nilerr // the same
	}
	if late.StatusCode != http.StatusUnauthorized || late.Header.Get("WWW-Authenticate") == "" {
		_ = late.Body.Close()
		return pong, nil
	}
	_ = pong.Body.Close()
	preferToken(late.Header)
	return late, nil
}

// preferToken removes the other challenges of an answer that also asks for a token, which needs no password: the
// library would take Basic first.
func preferToken(header http.Header) {
	if slices.ContainsFunc(header[challengeKey], isToken) {
		header[challengeKey] = slices.DeleteFunc(header[challengeKey], func(c string) bool { return !isToken(c) })
	}
}

// challengeKey is the header of challenges, as package http writes it.
const challengeKey = "Www-Authenticate"

// isToken reports whether a challenge asks for a token, or credentials are one.
func isToken(text string) bool { return len(text) > 7 && strings.EqualFold(text[:7], "bearer ") }

// laterChallenge gets a token when a registry that has answered the ping and the head of the manifest without a
// challenge asks for a token later, for a blob. It does so once: the transport of a token answers further challenges.
type laterChallenge struct {
	host      string
	authorize func(challenges []string) (http.RoundTripper, error)

	mu      sync.Mutex
	current http.RoundTripper
	isLater bool
}

// RoundTrip implements http.RoundTripper.
func (t *laterChallenge) RoundTrip(request *http.Request) (*http.Response, error) {
	t.mu.Lock()
	current := t.current
	t.mu.Unlock()
	response, err := current.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusUnauthorized || request.URL.Host != t.host ||
		isToken(request.Header.Get("Authorization")) || !slices.ContainsFunc(response.Header[challengeKey], isToken) {
		return response, err
	}
	_ = response.Body.Close()
	if current, err = t.withToken(response.Header); err != nil {
		return nil, answerError(err)
	}
	return current.RoundTrip(request.Clone(request.Context()))
}

// withToken returns a transport with a token.
func (t *laterChallenge) withToken(header http.Header) (http.RoundTripper, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isLater {
		preferToken(header)
		authorized, err := t.authorize(header[challengeKey])
		if err != nil {
			return nil, err
		}
		t.current, t.isLater = authorized, true
	}
	return t.current, nil
}

// tokenAnswers returns an error for a web page in the place of a token, such as of a proxy that wants a password: the
// library would only say that it is no JSON.
type tokenAnswers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t tokenAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	isRegistrys := strings.HasPrefix(request.URL.Path, "/v2/") || request.Response != nil // or where a redirect leads
	if err != nil || isRegistrys || response.StatusCode != http.StatusOK {
		return response, err
	}
	const most = 512 // bytes before the first tag
	in := bufio.NewReaderSize(response.Body, most)
	start, _ := in.Peek(most) // a reader gets the error
	if bytes.HasPrefix(bytes.TrimSpace(start), []byte("<")) {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the server answers %s with a web page, not with a token", response.Status)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{in, response.Body}
	return response, nil
}
