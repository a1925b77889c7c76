package metadata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The part of HTTP/1.1 (RFC 9112) that the service speaks: one request for each
// connection, which every answer closes; bodies by Content-Length.

// Bounds of a request in bytes.
const (
	maxHead    = 8 << 10
	maxForm    = 256 << 10
	firstChunk = 512 // of a form, for which memory is taken before any of it has come
)

// Statuses of RFC 9110 and RFC 6585.
const (
	statusOK             = "200 OK"
	statusBadRequest     = "400 Bad Request"
	statusForbidden      = "403 Forbidden"
	statusNotFound       = "404 Not Found"
	statusNoMethod       = "405 Method Not Allowed"
	statusLengthRequired = "411 Length Required"
	statusTooLarge       = "413 Content Too Large"
	statusMediaType      = "415 Unsupported Media Type"
	statusHeadTooLarge   = "431 Request Header Fields Too Large"
	statusUnavailable    = "503 Service Unavailable"
	statusVersion        = "505 HTTP Version Not Supported"
)

// refusal is an error that is sent as the answer.
type refusal struct {
	status string
	allow  string // methods, with statusNoMethod
	text   string
}

// Error is the text of the answer.
func (r refusal) Error() string { return r.text }

func (r refusal) answer() answer {
	return answer{status: r.status, allow: r.allow, contentType: textType, body: []byte(r.text + "\n")}
}

// request is a request with an unread body.
type request struct {
	method, path string
	header       textproto.MIMEHeader

	bounded *io.LimitedReader // the connection, as far as it may be read
	in      *bufio.Reader     // of bounded
	whole   bool              // the head has been read
	read    bool              // so has the body
}

// unread reports whether a part of the request has not been read. It may be called at
// any time.
func (r *request) unread() bool {
	length := r.header.Get("Content-Length")
	body := r.header["Transfer-Encoding"] != nil || length != "" && length != "0"
	return !r.whole || body && !r.read || r.in.Buffered() > 0
}

// readRequest reads a request's head. A request may be returned together with an
// error: answer it with that refusal, unless the error is the reader's.
func readRequest(connection io.Reader) (*request, error) {
	r := &request{bounded: &io.LimitedReader{R: connection, N: maxHead}}
	r.in = bufio.NewReaderSize(r.bounded, 1<<10)
	text := textproto.NewReader(r.in)
	line, err := text.ReadLine()
	if err == nil {
		r.header, err = readHeader(text)
	}
	if err != nil {
		return r, r.headError(err)
	}
	r.whole = true
	return r, r.parse(line)
}

// readHeader reads a header and keeps the fields that the service reads. textproto.Reader.ReadMIMEHeader keeps all: a
// header of short names takes 30 times its size while the client sends it.
func readHeader(text *textproto.Reader) (textproto.MIMEHeader, error) {
	header := make(textproto.MIMEHeader)
	for {
		line, err := text.ReadContinuedLine()
		if err != nil || line == "" {
			return header, err
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return header, textproto.ProtocolError("malformed field")
		}
		switch name = textproto.CanonicalMIMEHeaderKey(name); name {
		case "Host", "Expect", "Content-Type", "Content-Length", "Transfer-Encoding":
			if len(header[name]) < 2 { // two are as wrong as more
				header.Add(name, strings.TrimSpace(value))
			}
		}
	}
}

func (r *request) headError(err error) error {
	var malformed textproto.ProtocolError
	switch {
	case errors.As(err, &malformed):
		return refusal{status: statusBadRequest, text: "malformed header"}
	case r.bounded.N == 0:
		return refusal{status: statusHeadTooLarge, text: fmt.Sprintf("the header is larger than %d bytes", maxHead)}
	}
	return err
}

// parse parses the request line.
func (r *request) parse(line string) error {
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || method == "" || !strings.HasPrefix(version, "HTTP/") {
		return refusal{status: statusBadRequest, text: "malformed request line"}
	}
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return refusal{status: statusVersion, text: "want HTTP/1.1"}
	}
	if version == "HTTP/1.1" && len(r.header["Host"]) != 1 {
		return refusal{status: statusBadRequest, text: "want one header field Host"}
	}
	where, err := url.ParseRequestURI(target)
	if err != nil {
		return refusal{status: statusBadRequest, text: "malformed request target"}
	}
	r.method, r.path = method, where.Path
	return nil
}

// formLength is the length of the form that follows the head, in bytes.
func (r *request) formLength() (int64, error) {
	kind, _, _ := strings.Cut(r.header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "application/x-www-form-urlencoded") {
		return 0, refusal{status: statusMediaType, text: "want a form, application/x-www-form-urlencoded"}
	}
	lengths := r.header["Content-Length"]
	if len(lengths) == 0 || r.header["Transfer-Encoding"] != nil {
		return 0, refusal{status: statusLengthRequired, text: "want a header field Content-Length"}
	}
	length, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil && !errors.Is(err, strconv.ErrRange) || len(lengths) > 1 {
		return 0, refusal{status: statusBadRequest, text: "malformed Content-Length"}
	}
	if err != nil || length > maxForm {
		return 0, refusal{status: statusTooLarge, text: fmt.Sprintf("the form is larger than %d bytes", maxForm)}
	}
	return int64(length), nil
}

// readForm reads a form of length bytes. If the client waits to be asked for it
// (100-continue), it asks on w. It takes memory as the form comes, not as its length
// announces, and calls hold with the size of each further chunk before it takes it; if
// hold returns false, it refuses the form.
func (r *request) readForm(length int64, w io.Writer, hold func(int64) bool) (form, error) {
	if strings.EqualFold(r.header.Get("Expect"), "100-continue") {
		if _, err := io.WriteString(w, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return nil, err
		}
	}
	r.bounded.N = max(0, length-int64(r.in.Buffered()))
	var body []byte
	for have := int64(0); have < length; have = int64(len(body)) {
		chunk := min(length-have, max(have, firstChunk))
		if !hold(chunk) {
			return nil, refusal{status: statusUnavailable, text: "too many forms at once"}
		}
		body = append(body, make([]byte, chunk)...)
		if _, err := io.ReadFull(r.in, body[have:]); err != nil {
			return nil, err
		}
	}
	r.read = true
	return parseForm(string(body))
}

// answer is a response.
type answer struct {
	status      string
	allow       string
	contentType string
	body        []byte
	bodiless    bool // to HEAD: the length is sent and the body is not
}

// write sends the answer in one system call, without copying its body.
func (a answer) write(w io.Writer, now time.Time) error {
	head := fmt.Appendf(nil, "HTTP/1.1 %s\r\nDate: %s\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n",
		a.status, now.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), a.contentType, len(a.body))
	if a.allow != "" {
		head = fmt.Appendf(head, "Allow: %s\r\n", a.allow)
	}
	parts := net.Buffers{append(head, "\r\n"...)}
	if !a.bodiless {
		parts = append(parts, a.body)
	}
	_, err := parts.WriteTo(w)
	return err
}
