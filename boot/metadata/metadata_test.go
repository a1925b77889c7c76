package metadata

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kurma.io/stager/plan"
	"kurma.io/stager/tests/clause"
)

const (
	testUUID     = "6733c088-a507-4694-aabf-edbe4fc5266f"
	testImageID  = "sha512-8f4fd4d6d9d4a2a2f0c9ab3c9e5a5dfd7f1c1a8a6f3c1b2c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4"
	testPod      = `{"acVersion": "0.8.11", "acKind": "PodManifest", "apps": [], "isolators": [{"name": "unknown", "value": 1}]}`
	testManifest = `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/db", "extra": {"kept": true}}`
)

func testService() plan.Metadata {
	return plan.Metadata{
		UUID:        testUUID,
		Manifest:    []byte(testPod),
		Annotations: []plan.Annotation{{Name: "ip-address", Value: "10.1.2.3"}},
		Apps: []plan.AppMetadata{
			{
				Name: "db", ImageID: testImageID, ImageManifest: []byte(testManifest),
				ImageAnnotations: []plan.Annotation{{Name: "created", Value: "2014"}, {Name: "lorem", Value: "ipsum"}, {Name: "homepage", Value: "https://a"}},
				Annotations:      []plan.Annotation{{Name: "new", Value: "<1>"}, {Name: "lorem", Value: "dolor"}},
			},
			{Name: "none", ImageID: testImageID, ImageManifest: []byte(testManifest)},
			{Name: "empty", ImageID: testImageID, ImageManifest: []byte(testManifest), Annotations: []plan.Annotation{}},
		},
	}
}

func start(t *testing.T, pod plan.Metadata) *Server {
	t.Helper()
	s, err := Start(pod, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// reply is what a client got.
type reply struct {
	Status int
	Type   string
	Body   string
}

func ask(t *testing.T, method, url, contentType, body string) (reply, http.Header) {
	t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header["Metadata-Flavor"] = []string{"AppContainer"}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header.Get("Content-Type"), string(content)}, response.Header
}

func post(t *testing.T, url string, fields url.Values) reply {
	t.Helper()
	r, _ := ask(t, "POST", url, "application/x-www-form-urlencoded", fields.Encode())
	return r
}

func TestDocumentsAreThoseOfThePod(t *testing.T) {
	s := start(t, testService())
	text, js := "text/plain; charset=us-ascii", "application/json"
	for _, tc := range []struct {
		name, clauses, path, contentType, body string
	}{
		{"annotations of the pod", "C-MDS-02", "/pod/annotations", js, `[{"name":"ip-address","value":"10.1.2.3"}]`},
		{"pod manifest", "C-MDS-03", "/pod/manifest", js, testPod},
		{"UUID", "C-MDS-04", "/pod/uuid", text, testUUID},
		{
			"annotations of an app", "C-MDS-05", "/apps/db/annotations", js,
			`[{"name":"created","value":"2014"},{"name":"lorem","value":"dolor"},{"name":"homepage","value":"https://a"},{"name":"new","value":"\u003c1\u003e"}]`,
		},
		{"no annotations", "C-MDS-05", "/apps/none/annotations", js, `null`},
		{"empty annotations", "C-MDS-05", "/apps/empty/annotations", js, `[]`},
		{"image manifest", "C-MDS-06", "/apps/db/image/manifest", js, testManifest},
		{"image ID", "C-MDS-07", "/apps/db/image/id", text, testImageID},
		{"query", "", "/pod/uuid?a=b", text, testUUID},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clause.Covers(t, tc.clauses)
			got, header := ask(t, "GET", s.URL()+"/acMetadata/v1"+tc.path, "", "")
			if diff := cmp.Diff(reply{200, tc.contentType, tc.body}, got); diff != "" {
				t.Error(diff)
			}
			if header.Get("Date") == "" {
				t.Error("no date")
			}
			head, header := ask(t, "HEAD", s.URL()+"/acMetadata/v1"+tc.path, "", "")
			if diff := cmp.Diff(reply{200, tc.contentType, ""}, head); diff != "" || header.Get("Content-Length") == "0" {
				t.Error("HEAD: ", diff, header)
			}
		})
	}
}

func TestAPodWithoutAnnotationsHasADocument(t *testing.T) {
	for want, annotations := range map[string][]plan.Annotation{"null": nil, "[]": {}} {
		s := start(t, plan.Metadata{Annotations: annotations})
		if got, _ := ask(t, "GET", s.URL()+"/acMetadata/v1/pod/annotations", "", ""); got.Body != want {
			t.Errorf("%#v: %s", annotations, got.Body)
		}
	}
}

func TestWrongRequestsAreRefused(t *testing.T) {
	s := start(t, testService())
	base := s.URL() + "/acMetadata/v1"
	wrong := strings.Replace(s.URL(), s.service.token, strings.Repeat("0", len(s.service.token)), 1)
	for _, tc := range []struct {
		name, clauses, method, url, contentType, body string
		status                                        int
		allow                                         string
	}{
		{"wrong token", "C-MDS-01", "GET", wrong + "/acMetadata/v1/pod/uuid", "", "", 404, ""},
		{"wrong token and method", "C-MDS-01", "DELETE", wrong + "/acMetadata/v1/pod/uuid", "", "", 404, ""},
		{"wrong token, form", "C-MDS-01", "POST", wrong + "/acMetadata/v1/pod/hmac/sign", "application/x-www-form-urlencoded", "content=a", 404, ""},
		{"part of the token", "C-MDS-01", "GET", s.URL()[:len(s.URL())-1] + "/acMetadata/v1/pod/uuid", "", "", 404, ""},
		{"no token", "C-MDS-01", "GET", strings.TrimSuffix(s.URL(), s.service.token) + "acMetadata/v1/pod/uuid", "", "", 404, ""},
		{"unknown app", "C-MDS-11", "GET", base + "/apps/nobody/image/id", "", "", 404, ""},
		{"unknown entry", "C-MDS-11", "GET", base + "/apps/db/image", "", "", 404, ""},
		{"no list of apps", "C-MDS-11", "GET", base + "/apps/", "", "", 404, ""},
		{"key", "C-MDS-11", "GET", base + "/pod/hmac", "", "", 404, ""},
		{"way back up", "C-MDS-11", "GET", base + "/apps/nobody/../db/image/id", "", "", 404, ""},
		{"POST to a document", "C-MDS-11", "POST", base + "/pod/uuid", "", "a=b", 405, "GET, HEAD"},
		{"DELETE of a document", "C-MDS-11", "DELETE", base + "/apps/db/annotations", "", "", 405, "GET, HEAD"},
		{"PUT of a document", "C-MDS-11", "PUT", base + "/apps/db/image/manifest", "application/json", "{}", 405, "GET, HEAD"},
		{"GET of sign", "C-MDS-11", "GET", base + "/pod/hmac/sign", "", "", 405, "POST"},
		{"PUT of verify", "C-MDS-11", "PUT", base + "/pod/hmac/verify", "", "", 405, "POST"},
		{"no form", "", "POST", base + "/pod/hmac/sign", "text/plain", "content=a", 415, ""},
		{"no content", "", "POST", base + "/pod/hmac/sign", "application/x-www-form-urlencoded", "contents=a", 400, ""},
		{"two contents", "", "POST", base + "/pod/hmac/sign", "application/x-www-form-urlencoded", "content=a&content=b", 400, ""},
		{"a field in another spelling", "", "POST", base + "/pod/hmac/sign", "application/x-www-form-urlencoded", "content=a&%63ontent=b", 400, ""},
		{"malformed form", "", "POST", base + "/pod/hmac/sign", "application/x-www-form-urlencoded", "content=%zz", 400, ""},
		{"large form", "", "POST", base + "/pod/hmac/sign", "application/x-www-form-urlencoded", "content=" + strings.Repeat("a", maxForm), 413, ""},
		{"no signature", "", "POST", base + "/pod/hmac/verify", "application/x-www-form-urlencoded", "content=a&uuid=" + testUUID, 400, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clause.Covers(t, tc.clauses)
			got, header := ask(t, tc.method, tc.url, tc.contentType, tc.body)
			if got.Status != tc.status || header.Get("Allow") != tc.allow || got.Type != "text/plain; charset=us-ascii" {
				t.Errorf("%+v %v", got, header)
			}
		})
	}
}

// Tokens are 256 random bits.
func TestTokensAreUnpredictable(t *testing.T) {
	clause.Covers(t, "C-MDS-01")
	shape := regexp.MustCompile(`^http://127\.0\.0\.1:[0-9]+/[0-9a-f]{64}$`)
	seen := map[string]bool{}
	for range 20 {
		s := start(t, testService())
		if !shape.MatchString(s.URL()) || seen[s.service.token] {
			t.Errorf("URL %s", s.URL())
		}
		seen[s.service.token] = true
	}
}

func TestPodSignsContent(t *testing.T) {
	clause.Covers(t, "C-MDS-08")
	s := start(t, testService())
	for _, content := range []string{"Old MacDonald Had A Farm", "", "a=b&c\x00\xff\n", strings.Repeat("x", maxForm/2)} {
		key := hmac.New(sha512.New, identityOf(s).key[:])
		key.Write([]byte(content))
		want := reply{200, "text/plain; charset=us-ascii", base64.StdEncoding.EncodeToString(key.Sum(nil))}
		got := post(t, s.URL()+"/acMetadata/v1/pod/hmac/sign", url.Values{"content": {content}})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// identityOf finds the key where tests may.
func identityOf(s *Server) *identity { return s.service.identity }

func TestOnlyThePodsSignaturesAreVerified(t *testing.T) {
	s, other := start(t, testService()), start(t, testService())
	sign := func(s *Server, content string) string {
		return post(t, s.URL()+"/acMetadata/v1/pod/hmac/sign", url.Values{"content": {content}}).Body
	}
	good := sign(s, "farm")
	altered := "A" + good[1:]
	if good[0] == 'A' {
		altered = "B" + good[1:]
	}
	for _, tc := range []struct {
		name, clauses, content, uuid, signature string
		status                                  int
	}{
		{"its own", "", "farm", testUUID, good, 200},
		{"its own with a line end", "", "farm", testUUID, good + "\n", 200},
		{"its own, upper case UUID", "", "farm", strings.ToUpper(testUUID), good, 200},
		{"its own, plus signs unescaped", "", "farm", testUUID, strings.ReplaceAll(good, "+", " "), 200},
		{"other content", "C-MDS-09", "Farm", testUUID, good, 403},
		{"other UUID", "C-MDS-09", "farm", "0" + testUUID[1:], good, 403},
		{"another pod's signature", "C-MDS-09", "farm", testUUID, sign(other, "farm"), 403},
		{"altered signature", "", "farm", testUUID, altered, 403},
		{"short signature", "", "farm", testUUID, base64.StdEncoding.EncodeToString(make([]byte, 63)), 403},
		{"empty signature", "", "farm", testUUID, "", 403},
		{"no base64", "", "farm", testUUID, "!!", 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clause.Covers(t, tc.clauses)
			got := post(t, s.URL()+"/acMetadata/v1/pod/hmac/verify",
				url.Values{"content": {tc.content}, "uuid": {tc.uuid}, "signature": {tc.signature}})
			if got.Status != tc.status || got.Type != "text/plain; charset=us-ascii" {
				t.Errorf("%+v", got)
			}
		})
	}
}

// duplex is a connection of which one side is written already.
type duplex struct {
	io.Reader
	bytes.Buffer
}

func (d *duplex) Read(p []byte) (int, error) { return d.Reader.Read(p) }

func TestRequestsAreReadAsHTTPSays(t *testing.T) {
	s, err := newService(testService())
	if err != nil {
		t.Fatal(err)
	}
	s.token = "token"
	uuid, sign := "/token/acMetadata/v1/pod/uuid", "/token/acMetadata/v1/pod/hmac/sign"
	formHead := "Host: a\r\nContent-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
	for _, tc := range []struct {
		name, request string
		status        int // 0 for none
		unread        bool
	}{
		{"plain", "GET " + uuid + " HTTP/1.1\r\nHost: a\r\n\r\n", 200, false},
		{"bare line feeds", "GET " + uuid + " HTTP/1.1\nHost: a\n\n", 200, false},
		{"HTTP/1.0 has no Host", "GET " + uuid + " HTTP/1.0\r\n\r\n", 200, false},
		{"absolute target", "GET http://a:1" + uuid + " HTTP/1.1\r\nHost: a\r\n\r\n", 200, false},
		{"escaped target", "GET /%74oken/acMetadata/v1/pod/uuid HTTP/1.1\r\nHost: a\r\n\r\n", 200, false},
		{"another request after it", "GET " + uuid + " HTTP/1.1\r\nHost: a\r\n\r\nGET", 200, true},
		{"no Host", "GET " + uuid + " HTTP/1.1\r\n\r\n", 400, false},
		{"two Hosts", "GET " + uuid + " HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, false},
		{"no version", "GET " + uuid + "\r\n\r\n", 400, false},
		{"two spaces", "GET  " + uuid + " HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\n", 505, false},
		{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404, false},
		{"authority", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 404, false},
		{"bad escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, false},
		{"bad header", "GET " + uuid + " HTTP/1.1\r\nHost\r\n\r\n", 400, true},
		{"large header", "GET " + uuid + " HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n", 431, true},
		{"large target", "GET /" + strings.Repeat("x", maxHead) + " HTTP/1.1\r\nHost: a\r\n\r\n", 431, true},
		{"early end", "GET " + uuid + " HTTP/1.1\r\nHost: a\r\n", 0, true},
		{"nothing", "", 0, true},
		{"form", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Content-Length: 9\r\n\r\ncontent=a", 200, false},
		{"form that is awaited", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Expect: 100-continue\r\nContent-Length: 9\r\n\r\ncontent=a", 200, false},
		{"chunked form", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Transfer-Encoding: chunked\r\n\r\n9\r\ncontent=a\r\n0\r\n\r\n", 411, true},
		{"form of no length", "POST " + sign + " HTTP/1.1\r\n" + formHead + "\r\n", 411, false},
		{"two lengths", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Content-Length: 9\r\nContent-Length: 8\r\n\r\ncontent=a", 400, true},
		{"negative length", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Content-Length: -9\r\n\r\ncontent=a", 400, true},
		{"length beyond numbers", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Content-Length: 99999999999999999999999\r\n\r\n", 413, true},
		{"short form", "POST " + sign + " HTTP/1.1\r\n" + formHead + "Content-Length: 10\r\n\r\ncontent=a", 0, true},
		{"unwanted form", "GET " + uuid + " HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\ncontent=a", 200, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, unread := roundTrip(t, s, tc.request)
			if status != tc.status || unread != tc.unread {
				t.Errorf("status %d, unread %t", status, unread)
			}
			if n := s.forms.Load(); n != 0 {
				t.Errorf("%d bytes of forms left", n)
			}
		})
	}
}

// An app chooses how many fields its form has, and must not choose the supervisor's memory with it.
func TestFieldsThatNobodyReadsTakeNoMemory(t *testing.T) {
	s, err := newService(testService())
	if err != nil {
		t.Fatal(err)
	}
	var fields strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&fields, "f%d=1&", i)
	}
	allocations := func(form string) float64 {
		request := fmt.Sprintf("POST /%s%s/pod/hmac/sign HTTP/1.0\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: %d\r\n\r\n%s", s.token, root, len(form), form)
		return testing.AllocsPerRun(2, func() {
			if status, _ := roundTrip(t, s, request); status != http.StatusOK {
				t.Fatal(status)
			}
		})
	}
	few, many := allocations("content="+strings.Repeat("x", fields.Len())), allocations(fields.String()+"content=x")
	if many > few+10 {
		t.Errorf("%g pieces of memory with many fields, %g with one", many, few)
	}
}

// roundTrip returns the status of the answer, 0 for none, which must be one
// well-formed answer and not have the key in it.
func roundTrip(t *testing.T, s *service, request string) (status int, unread bool) {
	c := &duplex{Reader: strings.NewReader(request)}
	a, unread, err := s.exchange(c)
	if err != nil {
		return 0, unread
	}
	if err := a.write(&c.Buffer, testTime); err != nil {
		t.Fatal(err)
	}
	sent := strings.TrimPrefix(c.String(), "HTTP/1.1 100 Continue\r\n\r\n")
	method := &http.Request{Method: "GET"}
	if a.bodiless {
		method.Method = "HEAD"
	}
	in := bufio.NewReader(strings.NewReader(sent))
	response, err := http.ReadResponse(in, method)
	if err != nil {
		t.Fatalf("%q: %v", sent, err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || in.Buffered() > 0 {
		t.Errorf("%q: %v", sent, err)
	}
	if strings.Contains(sent, string(s.identity.key[:])) {
		t.Errorf("%q has the key", sent)
	}
	return response.StatusCode, unread
}

// No document has the key, whichever way it might be written.
func TestNoDocumentHasTheKey(t *testing.T) {
	clause.Covers(t, "C-MDS-11")
	s := start(t, testService())
	key, err := json.Marshal(identityOf(s).key[:])
	if err != nil {
		t.Fatal(err)
	}
	for path, r := range s.service.resources {
		if bytes.Contains(r.document, identityOf(s).key[:]) || bytes.Contains(r.document, bytes.Trim(key, `"`)) {
			t.Errorf("%s has the key", path)
		}
	}
}
