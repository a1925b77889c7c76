package networks

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
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
	}, netip.MustParseAddr("127.0.0.1"))
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
	if _, err := ForwardLoopback([]PortMapping{{HostPort: tcpPort, Protocol: "tcp"}}, netip.IPv6Loopback()); err == nil {
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
