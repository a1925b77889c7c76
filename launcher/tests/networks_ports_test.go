package tests

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/harness"
)

// published is a port of a pod manifest: count ports of the host from number on, which lead to as many of the pod from
// podPort on.
func published(name, protocol string, number, podPort, count int) map[string]any {
	return map[string]any{"name": name, "hostPort": number, "podPort": map[string]any{"name": name, "protocol": protocol, "port": podPort, "count": count}}
}

// inNamespace runs do on a thread in a network namespace: a socket belongs to the namespace of the thread that makes it.
func inNamespace(t *testing.T, namespace string, do func() error) {
	t.Helper()
	file, err := os.Open(namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	done := make(chan error)
	var enter func()
	enter = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// /proc/self stands for the main thread, which cannot end: this goroutine keeps it meanwhile.
			ended := make(chan struct{})
			go func() { defer close(ended); enter() }()
			<-ended
			runtime.UnlockOSThread()
			return
		}
		err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = do()
		}
		done <- err // the runtime ends the thread, which is not unlocked
	}
	go enter()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// answerUDP answers each datagram to a port of a pod, from inside the pod's network namespace.
func answerUDP(p *harness.Pod, port int, text string) {
	p.T.Helper()
	var socket net.PacketConn
	inNamespace(p.T, fmt.Sprintf("/proc/%d/ns/net", p.Stager), func() (err error) {
		socket, err = net.ListenPacket("udp", fmt.Sprint(":", port))
		return err
	})
	p.T.Cleanup(func() { _ = socket.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			_, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo([]byte(text), from)
		}
	}()
}

// askUDP sends a datagram from inside the namespace, and returns the answer, "" for none.
func (n *netns) askUDP(address string, port int) string {
	n.t.Helper()
	var conn net.Conn
	inNamespace(n.t, fmt.Sprintf("/proc/%d/ns/net", n.hold.Process.Pid), func() (err error) {
		conn, err = net.Dial("udp", net.JoinHostPort(address, fmt.Sprint(port)))
		return err
	})
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		n.t.Fatal(err)
	}
	buffer := make([]byte, 64)
	if _, err := conn.Write([]byte("?")); err != nil {
		return ""
	}
	count, _ := conn.Read(buffer) // 0 if there is no answer in time
	return string(buffer[:count])
}

// refuses checks that a connection from inside the namespace is refused at once, and does not hang.
func (n *netns) refuses(t *testing.T, address string) {
	t.Helper()
	inNamespace(t, fmt.Sprintf("/proc/%d/ns/net", n.hold.Process.Pid), func() error {
		conn, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err == nil {
			_ = conn.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connect to %s: %v", address, err)
		}
		return nil
	})
}

// Published ports, TCP, UDP and a range, answer on the host and in another network namespace, by IPv4 and IPv6,
// and on 127.0.0.1.
func TestPublishedPortsAnswerFromEverywhere(t *testing.T) {
	t.Parallel()
	for _, backend := range backends() {
		t.Run(backend, func(t *testing.T) {
			m := newNetMachine(t, "["+bridgeEntry(backend)+"]")
			world := m.withWorld()
			only := published("only", "tcp", 18090, 8080, 1)
			only["hostIP"] = "203.0.113.2"
			servers := harness.PodOf(server("one", "one for"), suite.Shell("two", serveScript("/tmp/www", "[::]", 8081, "two for")))
			p := m.connect("p", netPodDoc{servers, []map[string]any{
				published("range", "tcp", 18080, 8080, 2), published("udp", "udp", 19090, 9090, 1), only,
			}}, "bridge")
			answerUDP(p, 9090, "udp")
			for _, from := range []struct {
				name    string
				n       *netns
				address string
			}{
				{"the host", m.host, "203.0.113.2"},
				{"the host, IPv6", m.host, "2001:db8::2"},
				{"loopback", m.host, "127.0.0.1"},
				{"the world", world, "203.0.113.2"},
				{"the world, IPv6", world, "2001:db8::2"},
			} {
				t.Run(from.name, func(t *testing.T) {
					for port, want := range map[int]string{18080: "one for", 18081: "two for"} {
						answers(t, want, func() string {
							words := strings.Fields(from.n.fetch(from.address, port))
							return strings.Join(words[:min(2, len(words))], " ")
						})
					}
					answers(t, "udp", func() string { return from.n.askUDP(from.address, 19090) })
					fetched := func() bool { return strings.HasPrefix(from.n.fetch(from.address, 18090), "one for ") }
					if from.address == "203.0.113.2" {
						harness.Eventually(t, "the port of one address of the host answers", fetched)
					} else if fetched() {
						t.Error("the port of one address of the host answers on another")
					}
				})
			}
			m.host.refuses(t, "[::1]:18080")
		})
	}
}

// A port in use is an error that names its holder: another pod, or a process.
func TestAPublishedPortInUseNamesItsHolder(t *testing.T) {
	t.Parallel()
	m := newNetMachine(t, "["+bridgeEntry("iptables")+"]")
	doc := func(port int) netPodDoc {
		return netPodDoc{harness.PodOf(suite.Shell("s", "sleep 1000")), []map[string]any{published("web", "tcp", port, 80, 1)}}
	}
	first := m.connect("first", doc(18080), "bridge")
	m.host.serve("0.0.0.0", 9000, "host")
	for _, tt := range []struct {
		port  int
		words []string
	}{
		{18080, []string{"port 18080/tcp", `pod "first"`, first.UUID}},
		{9000, []string{"port 9000/tcp", "process ", "(busybox)"}},
	} {
		r := m.Launcher("run", "--detach", "--name", "second", "--net", "bridge", m.Write("second.json", doc(tt.port)))
		if r.Code != 1 {
			t.Errorf("%d: %+v", tt.port, r)
		}
		for _, words := range tt.words {
			if !strings.Contains(r.Stderr, words) {
				t.Errorf("%d: %q is without %q", tt.port, r.Stderr, words)
			}
		}
	}
	m.Must("stop", "first")
	m.connect("second", doc(18080), "bridge")
}
