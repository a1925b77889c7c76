package metadata

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync/atomic"

	"kurma.io/stager/plan"
)

// maxForms bounds the forms of all requests under way together, in bytes. Their answers take eight times as much until
// the Go runtime collects it, and the apps leave little memory to the supervisor (leaveRoomForStager).
const maxForms = 4 * maxForm

// service answers requests. Any number of goroutines may use it at once.
type service struct {
	token     string
	identity  *identity
	resources map[string]resource // by path below the token
	forms     atomic.Int64        // bytes held for forms under way
}

func newService(pod plan.Metadata) (*service, error) {
	id := newIdentity(pod.UUID)
	resources, err := resourcesOf(pod, id)
	if err != nil {
		return nil, err
	}
	var token [32]byte
	_, _ = rand.Read(token[:]) // never fails (crypto/rand)
	return &service{token: hex.EncodeToString(token[:]), identity: id, resources: resources}, nil
}

// exchange reads a request from c and returns its answer, which the caller sends.
// unread says that a part of the request has not been read. An error means that no
// request came.
func (s *service) exchange(c io.ReadWriter) (a answer, unread bool, err error) {
	r, err := readRequest(c)
	if err == nil {
		a, err = s.answer(r, c)
	}
	if no, ok := errors.AsType[refusal](err); ok {
		a, err = no.answer(), nil
	}
	a.bodiless = r.method == "HEAD"
	return a, r.unread(), err
}

// answer returns the answer to r. A request without the token is refused before
// anything else is looked at.
func (s *service) answer(r *request, w io.Writer) (answer, error) {
	token, path, _ := strings.Cut(strings.TrimPrefix(r.path, "/"), "/")
	known := subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
	found, ok := s.resources["/"+path]
	switch {
	case !known || !ok:
		return answer{}, refusal{status: statusNotFound, text: "not found"}
	case found.submit != nil && r.method == "POST":
		return s.submit(r, w, found.submit)
	case found.submit != nil:
		return answer{}, refusal{status: statusNoMethod, allow: "POST", text: "want POST, with a form"}
	case r.method == "GET" || r.method == "HEAD":
		return answer{status: statusOK, contentType: found.contentType, body: found.document}, nil
	}
	return answer{}, refusal{status: statusNoMethod, allow: "GET, HEAD", text: "want GET"}
}

// submit reads r's form and returns f's answer to it.
func (s *service) submit(r *request, w io.Writer, f func(form) (answer, error)) (answer, error) {
	length, err := r.formLength()
	if err != nil {
		return answer{}, err
	}
	var held int64
	defer func() { s.forms.Add(-held) }()
	values, err := r.readForm(length, w, func(n int64) bool {
		held += n
		return s.forms.Add(n) <= maxForms
	})
	if err != nil {
		return answer{}, err
	}
	return f(values)
}
