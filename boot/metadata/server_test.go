package metadata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/surroundings"
)

// fetch asks for a document on a connection of its own, from the calling thread.
func fetch(serverURL, path string) (string, error) {
	where, token, _ := strings.Cut(strings.TrimPrefix(serverURL, "http://"), "/")
	c, err := net.Dial("tcp4", where)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET /%s%s%s HTTP/1.1\r\nHost: a\r\n\r\n", token, root, path); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// A thousand requests at once are all answered.
func TestManyRequestsAreAnsweredAtOnce(t *testing.T) {
	clause.Covers(t, "C-MDS-10")
	s := start(t, testService())
	errs := make([]error, 1000)
	var clients sync.WaitGroup
	for i := range errs {
		clients.Go(func() {
			body, err := fetch(s.URL(), "/pod/manifest")
			if err == nil && body != testPod {
				err = fmt.Errorf("answer %q", body)
			}
			errs[i] = err
		})
	}
	clients.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Clients that connect and send nothing, or half a request, keep no other client out.
func TestSilentClientsDoNotBlockOthers(t *testing.T) {
	clause.Covers(t, "C-MDS-10")
	s := start(t, testService())
	for i := range maxConnections + 100 {
		c, err := net.Dial("tcp4", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost:"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if body, err := fetch(s.URL(), "/pod/uuid"); err != nil || body != testUUID {
		t.Errorf("%q, %v", body, err)
	}
}

// A client that sends many requests and does not read does not prevent the service from ending.
func TestCloseDoesNotWaitForClients(t *testing.T) {
	pod := testService()
	pod.Manifest = make([]byte, 32<<20)
	s, err := Start(pod, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c, err := net.Dial("tcp4", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := fmt.Fprintf(c, "GET /%s%s/pod/manifest HTTP/1.1\r\nHost: a\r\n\r\n", s.service.token, root); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := fetch(s.URL(), "/pod/uuid"); err == nil {
		t.Error("there is an answer after the end")
	}
}

// A client that sends much and is refused sees why.
func TestAClientThatSendsMuchReadsItsRefusal(t *testing.T) {
	s := start(t, testService())
	for range 20 {
		got, _ := ask(t, "PUT", s.URL()+root+"/pod/uuid", "", strings.Repeat("x", maxLinger-maxHead))
		if got.Status != http.StatusMethodNotAllowed {
			t.Fatalf("%+v", got)
		}
	}
}

// Pods with the host's network are distinguished by their tokens.
func TestTwoPodsInOneNetworkHaveServicesOfTheirOwn(t *testing.T) {
	clause.Covers(t, "C-MDS-01")
	first, second := testService(), testService()
	second.UUID, second.Apps = "0"+testUUID[1:], nil
	a, b := start(t, first), start(t, second)
	for s, want := range map[*Server]string{a: first.UUID, b: second.UUID} {
		if got, err := fetch(s.URL(), "/pod/uuid"); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	}
	crossed := strings.Replace(a.URL(), a.service.token, b.service.token, 1)
	if got, err := fetch(crossed, "/pod/uuid"); err == nil {
		t.Errorf("one pod's token opens the other: %q", got)
	}
}

// inNetwork runs f on a thread that has a network namespace of its own.
func inNetwork(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with its namespace
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

func setLoopback(up bool) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if up {
		request.SetUint16(unix.IFF_UP)
	}
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

func TestTheServiceAnswersInANetworkOfItsOwn(t *testing.T) {
	surroundings.Root(t)
	err := inNetwork(t, func() error {
		if err := setLoopback(true); err != nil {
			return err
		}
		s := start(t, testService())
		got, err := fetch(s.URL(), "/pod/uuid")
		if err == nil && got != testUUID {
			err = fmt.Errorf("answer %q", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTheServiceNeedsALoopbackDevice(t *testing.T) {
	surroundings.Root(t)
	for _, wasUp := range []bool{false, true} {
		err := inNetwork(t, func() error {
			if wasUp {
				if err := errors.Join(setLoopback(true), setLoopback(false)); err != nil {
					return err
				}
			}
			s, err := Start(testService(), slog.New(slog.DiscardHandler))
			if err == nil {
				err = errors.Join(errors.New("it starts"), s.Close())
			}
			return err
		})
		if !errors.Is(err, ErrNoLoopback) {
			t.Errorf("%v", err)
		}
	}
}

// Ports that apps want are theirs, unless they want all.
func TestTheAppsPortsStayFree(t *testing.T) {
	pod := testService()
	pod.Ports = []plan.PortRange{{First: 0, Count: 40000}, {First: 40100, Count: 100}}
	for range 5 {
		s := start(t, pod)
		if port := uint(s.listener.Addr().(*net.TCPAddr).Port); pod.Ports[0].Has(port) || pod.Ports[1].Has(port) {
			t.Errorf("port %d", port)
		}
	}
	pod.Ports = []plan.PortRange{{First: 1, Count: 65535}}
	start(t, pod)
}

// Those who have their answer and more to say are the first to go when there is
// no room.
func TestLingeringClientIsDropped(t *testing.T) {
	s := start(t, testService())
	c, err := net.Dial("tcp4", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil { // the answer, and the end that the service gives it
		t.Fatal(err)
	}
	s.dropSlowest(time.Now().Add(patience))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) != 0 {
		t.Error("it still has time")
	}
}

// Those who announce large forms and do not send them leave room for others'.
func TestAnnouncedFormsLeaveRoomForOthers(t *testing.T) {
	s := start(t, testService())
	for range maxConnections - 1 {
		c, err := net.Dial("tcp4", s.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /%s%s/pod/hmac/sign HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", s.service.token, root, maxForm)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	content := strings.Repeat("x", maxForm/2)
	if got, _ := ask(t, "POST", s.URL()+root+"/pod/hmac/sign", "application/x-www-form-urlencoded", "content="+content); got.Status != http.StatusOK {
		t.Errorf("%+v", got)
	}
}

// However much clients send, the supervisor stays small: it must fit into the memory that apps leave to it.
func TestManyClientsTakeLittleMemory(t *testing.T) {
	var fields strings.Builder
	for i := 0; fields.Len() < maxHead-200; i++ {
		fmt.Fprintf(&fields, "%x:\n", i)
	}
	form := "Content-Type: application/x-www-form-urlencoded\nContent-Length: " + strconv.Itoa(maxForm) + "\n\n" + strings.Repeat("x", maxForm-1)
	for _, tc := range []struct {
		name, rest string
		clients    int
	}{
		{"many fields in the head", fields.String(), 1000},
		{"large forms", form, 64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, testService())
			before := liveMemory()
			for range tc.clients {
				c, err := net.Dial("tcp4", s.listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				// A connection that the service drops meanwhile fails.
				_, _ = fmt.Fprintf(c, "POST /%s%s/pod/hmac/sign HTTP/1.1\nHost: a\n%s", s.service.token, root, tc.rest)
			}
			surroundings.Eventually(t, "the service has read what the clients have sent", func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				for c := range s.conns {
					if unread(c) {
						return false
					}
				}
				return true
			})
			if took := liveMemory() - before; took > 8<<20 {
				t.Errorf("the clients take %d KiB", took>>10)
			}
		})
	}
}

// liveMemory returns the bytes of the heap that are in use.
func liveMemory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The service leaves descriptors to the rest of the process.
func TestTheServiceLeavesDescriptorsToOthers(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 200, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	s := start(t, testService())
	if got := cap(s.slots); got != 50 {
		t.Errorf("%d connections at once", got)
	}
}

// A client whose request has come is not dropped, however long the service takes.
func TestUnreadRequestIsNotDropped(t *testing.T) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, test := range []struct {
		sent string
		left int
	}{{"GET", 1}, {"", 0}} {
		client, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := io.WriteString(client, test.sent); err != nil {
			t.Fatal(err)
		}
		c, err := listener.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		alone := &Server{conns: map[*net.TCPConn]wait{}}
		alone.begin(c)
		alone.dropSlowest(time.Now().Add(patience))
		if len(alone.conns) != test.left {
			t.Errorf("%q sent: %d connections are left", test.sent, len(alone.conns))
		}
		if test.left == 0 {
			continue
		}
		if _, err := (&requestReader{TCPConn: c, server: alone, since: time.Now()}).Read(make([]byte, 9)); err != nil {
			t.Fatal(err)
		}
		if alone.dropSlowest(time.Now().Add(time.Hour)); len(alone.conns) == 0 {
			t.Error("one that is being answered is dropped")
		}
	}
}
