package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	// mediaType is the version of Docker's plugin protocol.
	mediaType = "application/vnd.docker.plugins.v1.2+json"
	// maxAnswer is the longest answer that is read, in bytes.
	maxAnswer = 1 << 20
	// maxHeaders is the longest header of an answer, in bytes.
	maxHeaders = 64 << 10
	// maxDriverWords is how much of a driver's error is reported, in bytes.
	maxDriverWords = 1 << 10
)

// patience is how long drivers are waited for.
type patience struct {
	request time.Duration // for one request
	retries time.Duration // for a driver that is not there, or cannot be reached, with pauses in between
	pause   time.Duration // the first; each is twice as long as the one before
}

// dockerPatience is Docker's, but that a request has a limit: a daemon limits a call to a minute.
func dockerPatience() patience {
	return patience{request: 30 * time.Second, retries: 30 * time.Second, pause: time.Second}
}

// driver is a network driver process.
type driver struct {
	name     string
	roots    []*root
	patience patience
}

// answeredError is the answer of a driver that has refused a call. After any other error the driver may or may not
// have carried out the call.
type answeredError struct {
	status int
	words  string
}

func (e *answeredError) Error() string {
	switch {
	case e.words == "":
		return fmt.Sprintf("HTTP status %d", e.status)
	case e.status != http.StatusOK:
		return fmt.Sprintf("%s (HTTP status %d)", e.words, e.status)
	}
	return e.words
}

// answered reports whether a call failed because the driver said so.
func answered(err error) bool {
	var answer *answeredError
	return errors.As(err, &answer)
}

// notFound reports whether a driver does not know a method.
func notFound(err error) bool {
	var answer *answeredError
	return errors.As(err, &answer) && answer.status == http.StatusNotFound
}

// A call that the driver does not answer wraps one of these, or errNotFound. Only after errNoAnswer the
// driver may have done what it was asked for. An answeredError is beside errNoAnswer if an earlier try of
// the call had no answer: the driver may have carried that out, and refused the second request for it.
var (
	errNotReached = errors.New("cannot be reached")
	errNoAnswer   = errors.New("no answer")
)

// isSilent reports whether a call failed because the driver did not answer.
func isSilent(err error) bool {
	return !answered(err) && (errors.Is(err, errNoAnswer) || errors.Is(err, errNotReached) || errors.Is(err, errNotFound))
}

// refused reports whether a call failed because the driver said so, and the driver has done nothing.
func refused(err error) bool { return answered(err) && !errors.Is(err, errNoAnswer) }

// call calls a method. A nil request is an empty body; a nil response is an answer that does not
// matter. Like Docker it tries again while the driver is not there or its connection fails.
func (d *driver) call(ctx context.Context, method string, request, response any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	start := time.Now()
	pause := d.patience.pause
	var lost error // of a request that the driver may have got
	for {
		status, answer, err := d.try(ctx, method, body)
		if errors.Is(err, errNoAnswer) {
			lost = err
		}
		if err == nil {
			if err = read(status, answer, response); err == nil {
				return nil
			}
			if lost != nil && answered(err) {
				err = fmt.Errorf("%w; asked again: %w", lost, err)
			}
			return d.wrong(method, err)
		}
		if !isSilent(err) || time.Since(start)+pause >= d.patience.retries || !sleep(ctx, pause) {
			if lost != nil {
				err = lost
			}
			return d.wrong(method, err)
		}
		pause *= 2
	}
}

// sleep reports whether ctx has not ended meanwhile.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// client returns a client for one request.
func (t target) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxHeaders,
			TLSClientConfig:        t.tls,
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx) },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (t target) url(method string) string {
	url := "http://plugin.localhost/" + method
	if t.network == "tcp" {
		url = "http://" + t.address + "/" + method
	}
	if t.tls != nil {
		url = "https" + strings.TrimPrefix(url, "http")
	}
	return url
}

// unanswered says of a request without a response whether it has reached the driver.
func unanswered(ctx context.Context, err error) error {
	kind := errNoAnswer
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" || errors.Is(err, fs.ErrNotExist) {
		kind = errNotReached
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return fmt.Errorf("%w: %w", kind, err)
}

// try sends a request once.
func (d *driver) try(ctx context.Context, method string, body []byte) (status int, answer []byte, err error) {
	where, err := find(d.roots, d.name)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.patience.request, fmt.Errorf("not done within %v", d.patience.request))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, where.url(method), bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", mediaType)
	response, err := where.client().Do(request)
	if err != nil {
		return 0, nil, unanswered(ctx, err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("read answer: %w", err)
	case len(answer) > maxAnswer:
		return 0, nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return response.StatusCode, answer, nil
}

// read reads an answer. An Err in it, and any status but 200, is an answeredError.
func read(status int, answer []byte, response any) error {
	var failure struct{ Err string }
	err := json.Unmarshal(answer, &failure)
	words := failure.Err
	if status != http.StatusOK && words == "" {
		words = string(answer)
	}
	if words = shorten(words); status != http.StatusOK || words != "" {
		return &answeredError{status, words}
	}
	if err == nil && response != nil {
		err = json.Unmarshal(answer, response)
	}
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	return nil
}

// shorten returns a driver's words in one line.
func shorten(text string) string {
	line := strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(line) > maxDriverWords {
		return strings.ToValidUTF8(line[:maxDriverWords], "") + "…"
	}
	return line
}

// handshake registers with the driver, and returns its scope.
func (d *driver) handshake(ctx context.Context) (scope string, err error) {
	var m manifest
	if err := d.call(ctx, "Plugin.Activate", nil, &m); err != nil {
		return "", err
	}
	if !slices.Contains(m.Implements, "NetworkDriver") {
		return "", fmt.Errorf("driver %q: Plugin.Activate: implements %q, want NetworkDriver", d.name, m.Implements)
	}
	var c capabilities
	if err := d.network(ctx, "GetCapabilities", nil, &c); err != nil {
		return "", err
	}
	if c.Scope != "local" && c.Scope != "global" {
		return "", fmt.Errorf("driver %q: GetCapabilities: scope %q: want local or global", d.name, c.Scope)
	}
	return c.Scope, nil
}

// network calls a method of network drivers.
func (d *driver) network(ctx context.Context, method string, request, response any) error {
	return d.call(ctx, "NetworkDriver."+method, request, response)
}

// wrong is the error of an answer that cannot be used.
func (d *driver) wrong(method string, err error) error {
	return fmt.Errorf("driver %q: %s: %w", d.name, method, err)
}
