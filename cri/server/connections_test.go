package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/loopback"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// streamPort serves streams, and returns a URL with a token each time.
func streamPort(t *testing.T, change ...func(*http.Server)) (newURL func() *url.URL) {
	t.Helper()
	store, err := records.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store}
	server, clients, err := s.streamServer(listener)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range change {
		one(server)
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(clients) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return func() *url.URL {
		t.Helper()
		r, err := s.streams.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: records.NewID(), Port: []int32{1}})
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := url.Parse(r.GetUrl())
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
}

// patient makes a server wait for strangers as long as they like.
func patient(s *http.Server) { s.ReadTimeout = 0 }

// stranger connects to the port, and sends a text.
func stranger(t *testing.T, host, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // which ends the test
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, text) // the server may have closed it
	return c
}

// upgrade asks for the stream of a URL, and returns the status of the response.
func upgrade(t *testing.T, to *url.URL) int {
	t.Helper()
	transport, err := spdy.NewRoundTripper(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(http.MethodPost, to.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Stream-Protocol-Version", "portforward.k8s.io")
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		connection, err := transport.NewConnection(response)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	return response.StatusCode
}

// Whoever can connect to the address of streams holds no more than some connections with short requests, and a client
// with a token is served meanwhile.
func TestStrangersOfTheStreamPortAreFew(t *testing.T) {
	newURL := streamPort(t, patient)
	host := newURL().Host
	var all []net.Conn
	for range 5 * loopback.MaxStrangers {
		all = append(all, stranger(t, host, "GET / HTTP/1.1\r\nHost: "))
	}
	for _, c := range all[:len(all)-loopback.MaxStrangers] {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatalf("the server answers %d bytes to an unfinished request", n)
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the server keeps more than %d connections without a request", loopback.MaxStrangers)
		}
	}
	if got := upgrade(t, newURL()); got != http.StatusSwitchingProtocols {
		t.Errorf("a client with a token: status %d", got)
	}
}

// Streams that have begun do not count, and are not closed for strangers.
func TestStreamsAreNoStrangers(t *testing.T) {
	newURL := streamPort(t, patient)
	to := newURL()
	c := stranger(t, to.Host, "POST "+to.Path+" HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"+
		"X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n")
	reader := bufio.NewReader(c)
	if r, err := http.ReadResponse(reader, nil); err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", r, err)
	}
	for range 2 * loopback.MaxStrangers {
		stranger(t, to.Host, "GET /")
	}
	if got := upgrade(t, newURL()); got != http.StatusSwitchingProtocols { // all have been accepted
		t.Fatalf("status %d", got)
	}
	if _, err := c.Write([]byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1}); err != nil { // a ping, which is echoed
		t.Fatal(err)
	}
	if echo, err := reader.Peek(12); err != nil {
		t.Errorf("the stream was closed: %q, %v", echo, err)
	}
}

func TestTheStreamPortTakesShortRequestsAlone(t *testing.T) {
	newURL := streamPort(t)
	for size, want := range map[int]int{loopback.MaxHeader / 2: http.StatusNotFound, 2 * loopback.MaxHeader: http.StatusRequestHeaderFieldsTooLarge} {
		c := stranger(t, newURL().Host, fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", size)))
		if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != want {
			t.Errorf("%d bytes: %v, %v, want status %d", size, r, err, want)
		}
	}
}

// A request that does not come, or not to its end, is not waited for, nor is a client that reads no response.
func TestTheStreamPortWaitsForNoStranger(t *testing.T) {
	t.Parallel()
	host := streamPort(t)().Host
	connections := make(map[string]net.Conn)
	for _, text := range []string{
		"", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		connections[text] = stranger(t, host, text)
	}
	for text, c := range connections {
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), unix.ECONNRESET.Error()) {
			t.Errorf("after %q: %v", text, err)
		}
	}
}

// A URL that the server has returned is good once, and a part of it is not.
func TestAStreamsTokenIsGoodOnce(t *testing.T) {
	newURL := streamPort(t)
	to := newURL()
	guess := *to
	guess.Path = to.Path[strings.Index(to.Path, "/portforward/"):]
	wrong := *to
	wrong.Path = to.Path[:len(to.Path)-1] + "."
	for _, step := range []struct {
		name string
		url  *url.URL
		want int
	}{
		{"the token alone", &guess, http.StatusNotFound},
		{"another token", &wrong, http.StatusNotFound},
		{"the URL", to, http.StatusSwitchingProtocols},
		{"the URL again", to, http.StatusNotFound},
	} {
		if got := upgrade(t, step.url); got != step.want {
			t.Errorf("%s: status %d, want %d", step.name, got, step.want)
		}
	}
}
