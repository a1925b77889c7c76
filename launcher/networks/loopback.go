package networks

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Linux routes no packet from ::1 to another interface, so no rule of iptables or nftables can lead a port of
// [::1] to a pod, and no plugin does. A Loopback listens there, and copies.

// Loopback forwards ports of [::1] to a pod, until Close.
type Loopback struct {
	listeners []io.Closer
	running   sync.WaitGroup

	mu     sync.Mutex
	open   map[io.Closer]bool // connections
	closed bool
}

// udpSilence is how long a client of a UDP port may be silent before its place is given up.
const udpSilence = time.Minute

// ForwardLoopback listens on [::1] for the ports that are published on every address or on ::1, and forwards
// them to the pod's address. A machine without IPv6 has no [::1], and nothing is forwarded.
func ForwardLoopback(ports []PortMapping, pod netip.Addr) (*Loopback, error) {
	l := &Loopback{open: make(map[io.Closer]bool)}
	for _, p := range ports {
		host, _ := netip.ParseAddr(p.HostIP) // invalid for "", which is every address
		if host.IsValid() && host != netip.IPv6Unspecified() && host != netip.IPv6Loopback() {
			continue
		}
		to := netip.AddrPortFrom(pod, uint16(p.ContainerPort)).String()
		err := l.listen(p.Protocol, net.JoinHostPort("::1", strconv.FormatUint(uint64(p.HostPort), 10)), to)
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("forward port %d of [::1]: %w", p.HostPort, err), l.Close())
		}
	}
	return l, nil
}

func (l *Loopback) listen(protocol, address, to string) error {
	switch protocol {
	case "tcp":
		listener, err := net.Listen("tcp6", address)
		if err != nil {
			return err
		}
		l.listeners = append(l.listeners, listener)
		l.running.Go(func() { l.acceptTCP(listener, to) })
	case "udp":
		socket, err := net.ListenPacket("udp6", address)
		if err != nil {
			return err
		}
		l.listeners = append(l.listeners, socket)
		l.running.Go(func() { l.serveUDP(socket, to) })
	}
	return nil // no other protocol has been published
}

// Close ends the forwarding, with the connections.
func (l *Loopback) Close() error {
	var errs []error
	l.mu.Lock()
	for conn := range l.open {
		_ = conn.Close() // its goroutine closes it again
	}
	l.closed = true
	l.mu.Unlock()
	for _, listener := range l.listeners {
		errs = append(errs, listener.Close())
	}
	l.running.Wait()
	return errors.Join(errs...)
}

// keep notes connections that Close closes, and closes them at once after Close.
func (l *Loopback) keep(conns ...io.Closer) (drop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		l.open[conn] = true
		if l.closed {
			_ = conn.Close()
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close() // a second time, if Close was first
			delete(l.open, conn)
		}
	}
}

func (l *Loopback) acceptTCP(listener net.Listener, to string) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors
			continue
		}
		l.running.Go(func() { l.copyTCP(client, to) })
	}
}

func (l *Loopback) copyTCP(client net.Conn, to string) {
	defer l.keep(client)()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // the client sees its connection closed
	}
	defer l.keep(server)()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, err := io.Copy(way[1], way[0])
			_ = way[1].(*net.TCPConn).CloseWrite() // passes the end on
			if err != nil {
				_ = way[0].Close() // broken, so nobody reads the other way either
			}
		})
	}
	both.Wait()
}

// serveUDP has a socket for each client, so that answers find their way.
func (l *Loopback) serveUDP(socket net.PacketConn, to string) {
	var mu sync.Mutex
	servers := make(map[string]net.Conn)
	buffer := make([]byte, 64<<10)
	for {
		n, client, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		mu.Lock()
		server := servers[client.String()]
		if server == nil {
			if server, err = net.Dial("udp", to); err != nil {
				mu.Unlock()
				continue
			}
			servers[client.String()] = server
			l.running.Go(func() {
				l.answerUDP(socket, server, client)
				mu.Lock()
				defer mu.Unlock()
				delete(servers, client.String())
			})
		}
		_ = server.SetReadDeadline(time.Now().Add(udpSilence))
		mu.Unlock()
		_, _ = server.Write(buffer[:n]) // UDP loses what cannot be sent
	}
}

// answerUDP passes a pod's datagrams to a client until it has been silent for long.
func (l *Loopback) answerUDP(socket net.PacketConn, server net.Conn, client net.Addr) {
	defer l.keep(server)()
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		switch {
		case err == nil:
			_, _ = socket.WriteTo(buffer[:n], client)
		case !errors.Is(err, syscall.ECONNREFUSED): // nobody listens in the pod, yet
			return
		}
	}
}
