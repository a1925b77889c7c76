package networks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// freePort returns a port of [::1] that nobody uses.
func freePort(t *testing.T) uint {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint(l.Addr().(*net.TCPAddr).Port)
}

// ask sends a text and the end of what is sent, and returns the answer.
func ask(t *testing.T, network string, port uint, text string) (string, error) {
	t.Helper()
	conn, err := net.Dial(network, fmt.Sprintf("[::1]:%d", port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.CloseWrite(); err != nil {
			return "", err
		}
		answer, err := io.ReadAll(conn)
		return string(answer), err
	}
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	return string(buffer[:n]), err
}

// A pod answers on [::1], by TCP and UDP, until the forwarding is closed.
func TestLoopbackForwards(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			got, _ := io.ReadAll(conn) // the client's text, up to its end
			fmt.Fprintf(conn, "tcp %s", got)
			conn.Close()
		}
	}()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(append([]byte("udp "), buffer[:n]...), from)
		}
	}()
	tcpPort, udpPort, other := freePort(t), freePort(t), freePort(t)
	l, err := ForwardLoopback([]PortMapping{
		{HostPort: tcpPort, ContainerPort: uint(tcp.Addr().(*net.TCPAddr).Port), Protocol: "tcp"},
		{HostPort: udpPort, ContainerPort: uint(udp.LocalAddr().(*net.UDPAddr).Port), Protocol: "udp", HostIP: "::"},
		{HostPort: other, ContainerPort: 1, Protocol: "tcp", HostIP: "127.0.0.1"},
	}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := ask(t, "tcp", tcpPort, "x"); got != "tcp x" {
			t.Errorf("tcp: %q, %v", got, err)
		}
		if got, err := ask(t, "udp", udpPort, "y"); got != "udp y" {
			t.Errorf("udp: %q, %v", got, err)
		}
	}
	if _, err := ask(t, "tcp", other, "x"); err == nil {
		t.Error("a port of another address is forwarded")
	}
	if _, err := ForwardLoopback([]PortMapping{{HostPort: tcpPort, Protocol: "tcp"}}, []netip.Addr{netip.IPv6Loopback()}); err == nil {
		t.Error("a port in use is no error")
	}
	open, err := net.Dial("tcp", fmt.Sprintf("[::1]:%d", tcpPort)) // Close ends it
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ask(t, "tcp", tcpPort, "x"); err == nil {
		t.Error("a port is forwarded after Close")
	}
}

// serveAddress answers with its address on a port of it, or on any for 0, and returns the port.
func serveAddress(t *testing.T, address string, port int) int {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, address)
			conn.Close()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// hang listens on a port of an address as an app does that accepts nothing: connecting gets no answer.
func hang(t *testing.T, address string, port int) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(socket) })
	at := &unix.SockaddrInet4{Addr: netip.MustParseAddr(address).As4(), Port: port}
	if err := errors.Join(unix.Bind(socket, at), unix.Listen(socket, 0)); err != nil {
		t.Fatal(err)
	}
	for range 10 { // fills the backlog
		conn, err := net.DialTimeout("tcp4", net.JoinHostPort(address, strconv.Itoa(port)), time.Second)
		if os.IsTimeout(err) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the backlog is never full")
}

// An app listens on the addresses of one family, or of both, or does not answer on one.
func TestLoopbackTriesEveryAddressOfThePod(t *testing.T) {
	port := serveAddress(t, "127.0.0.1", 0)
	hang(t, "127.0.0.2", port)
	both := serveAddress(t, "127.0.0.1", 0)
	serveAddress(t, "127.0.0.2", both)
	for _, tt := range []struct {
		name, first, want string
		port              int
	}{
		{"refuses", "127.0.0.3", "127.0.0.1", port},
		{"hangs", "127.0.0.2", "127.0.0.1", port},
		{"answers", "127.0.0.2", "127.0.0.2", both},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outside := freePort(t)
			l, err := ForwardLoopback([]PortMapping{{HostPort: outside, ContainerPort: uint(tt.port), Protocol: "tcp"}},
				[]netip.Addr{netip.MustParseAddr(tt.first), netip.MustParseAddr("127.0.0.1")})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := ask(t, "tcp", outside, ""); got != tt.want {
				t.Errorf("answer %q, %v, want %q", got, err, tt.want)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nobody listens at the first address, so that the second gets the same datagram.
func TestLoopbackTriesEveryAddressOfThePodByUDP(t *testing.T) {
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(buffer[:n], from)
		}
	}()
	port := freePort(t)
	l, err := ForwardLoopback([]PortMapping{{HostPort: port, ContainerPort: uint(socket.LocalAddr().(*net.UDPAddr).Port), Protocol: "udp"}},
		[]netip.Addr{netip.MustParseAddr("127.0.0.3"), netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got, err := ask(t, "udp", port, "x"); got != "x" {
			t.Errorf("answer %q, %v", got, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Without anybody who listens, no datagram goes to and fro.
func TestADatagramIsSentAtMostTwice(t *testing.T) {
	var sockets []net.PacketConn
	var to []string
	for range 2 {
		socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		sockets, to = append(sockets, socket), append(to, socket.LocalAddr().String())
	}
	c := newUDPClient(nil, to)
	for _, server := range c.servers {
		defer server.Close()
	}
	for _, datagram := range []string{"x", "y"} {
		c.send([]byte(datagram))
		c.refused(1) // of an earlier datagram
		c.refused(0)
		c.refused(1)
	}
	for i, socket := range sockets {
		for _, want := range []string{"x", "y"} {
			buffer := make([]byte, 64)
			if n, _, err := socket.ReadFrom(buffer); string(buffer[:n]) != want {
				t.Errorf("server %d got %q, %v, want %q", i, buffer[:n], err, want)
			}
		}
	}
}

// Each address takes dialTime, so that all would take minutes.
func TestCloseDoesNotWaitForAnAppThatHangs(t *testing.T) {
	const hung = "127.0.0.2"
	port := int(freePort(t))
	hang(t, hung, port)
	ctx, cancel := context.WithCancel(t.Context())
	l := &Loopback{cancel: cancel, open: make(map[io.Closer]bool)}
	client, outside := net.Pipe()
	defer outside.Close()
	to := slices.Repeat([]string{net.JoinHostPort(hung, strconv.Itoa(port))}, 100)
	l.running.Go(func() { l.copyTCP(ctx, client, to) })
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("Close still waits")
	}
}
