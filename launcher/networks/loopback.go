package networks

import (
	"context"
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
	cancel    context.CancelFunc // ends the dials
	listeners []io.Closer
	running   sync.WaitGroup

	mu     sync.Mutex
	open   map[io.Closer]bool // connections
	closed bool
}

// dialTime is how long one address of a pod may leave a connection unanswered; Linux would try for two minutes.
const dialTime = 5 * time.Second

// dialMoment is how long it may before the next address is tried as well, as RFC 8305 recommends.
const dialMoment = 250 * time.Millisecond

// ForwardLoopback listens on [::1] for the ports that are published on every address or on ::1, and forwards
// them to the first of the pod's addresses that answers, TCP and UDP. A machine without IPv6 has no [::1], and
// nothing is forwarded.
func ForwardLoopback(ports []PortMapping, pod []netip.Addr) (*Loopback, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Loopback{cancel: cancel, open: make(map[io.Closer]bool)}
	for _, p := range ports {
		host, _ := netip.ParseAddr(p.HostIP) // invalid for "", which is every address
		if host.IsValid() && host != netip.IPv6Unspecified() && host != netip.IPv6Loopback() {
			continue
		}
		var to []string
		for _, address := range pod {
			to = append(to, netip.AddrPortFrom(address, uint16(p.ContainerPort)).String())
		}
		err := l.listen(ctx, p.Protocol, net.JoinHostPort("::1", strconv.FormatUint(uint64(p.HostPort), 10)), to)
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			break
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("forward port %d of [::1]: %w", p.HostPort, err), l.Close())
		}
	}
	return l, nil
}

func (l *Loopback) listen(ctx context.Context, protocol, address string, to []string) error {
	switch protocol {
	case "tcp":
		listener, err := net.Listen("tcp6", address)
		if err != nil {
			return err
		}
		l.listeners = append(l.listeners, listener)
		l.running.Go(func() { l.acceptTCP(ctx, listener, to) })
	case "udp":
		socket, err := net.ListenPacket("udp6", address)
		if err != nil {
			return err
		}
		l.listeners = append(l.listeners, socket)
		l.running.Go(func() { l.serveUDP(socket, to) })
	}
	return nil // SCTP is not forwarded
}

// Close ends the forwarding, with the connections.
func (l *Loopback) Close() error {
	var errs []error
	l.cancel()
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

func (l *Loopback) acceptTCP(ctx context.Context, listener net.Listener, to []string) {
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors
			continue
		}
		l.running.Go(func() { l.copyTCP(ctx, client, to) })
	}
}

func (l *Loopback) copyTCP(ctx context.Context, client net.Conn, to []string) {
	defer l.keep(client)()
	server, err := dial(ctx, to)
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

// dial connects to the first address that answers: an app may listen on those of one family alone. After an error, or without
// an answer for a moment, it tries the next address beside (RFC 8305, section 5): on a new bridge, IPv6 does not answer in the first seconds.
func dial(ctx context.Context, addresses []string) (net.Conn, error) {
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer)
	dials := 0
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for ; dials > 0; dials-- {
			if late := <-answers; late.err == nil {
				_ = late.conn.Close()
			}
		}
	}()
	dialer := net.Dialer{Timeout: dialTime}
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
			if len(addresses) == 0 {
				if dials == 0 {
					return nil, errors.New("the pod has no address")
				}
				continue
			}
			address := addresses[0]
			addresses = addresses[1:]
			dials++
			go func() {
				conn, err := dialer.DialContext(ctx, "tcp", address)
				answers <- answer{conn, err}
			}()
			next.Reset(dialMoment)
		case a := <-answers:
			dials--
			if a.err == nil || dials == 0 && len(addresses) == 0 {
				return a.conn, a.err
			}
			next.Reset(0)
		}
	}
}
