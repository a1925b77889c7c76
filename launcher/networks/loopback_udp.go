package networks

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// udpSilence is how long a client of a UDP port may be silent before its place is given up.
const udpSilence = time.Minute

// udpClient is a client of a UDP port. It has a socket for each address of the pod, so that answers find their
// way.
type udpClient struct {
	address net.Addr
	servers []net.Conn

	mu   sync.Mutex
	use  int    // the server that gets the datagrams
	last []byte // the last datagram, nil after it has been sent again
}

func (l *Loopback) serveUDP(socket net.PacketConn, to []string) {
	var mu sync.Mutex
	clients := make(map[string]*udpClient)
	buffer := make([]byte, 64<<10)
	for {
		n, address, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		mu.Lock()
		client := clients[address.String()]
		if client == nil {
			if client = newUDPClient(address, to); client == nil {
				mu.Unlock()
				continue
			}
			clients[address.String()] = client
			l.running.Go(func() {
				l.answerUDP(socket, client)
				mu.Lock()
				defer mu.Unlock()
				delete(clients, address.String())
			})
		}
		mu.Unlock()
		client.send(buffer[:n])
	}
}

// newUDPClient returns nil if the machine reaches none of the pod's addresses.
func newUDPClient(address net.Addr, to []string) *udpClient {
	c := &udpClient{address: address}
	for _, server := range to {
		if conn, err := net.Dial("udp", server); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(udpSilence))
			c.servers = append(c.servers, conn)
		}
	}
	if len(c.servers) == 0 {
		return nil
	}
	return c
}

// send passes a datagram to the pod. UDP loses what cannot be sent.
func (c *udpClient) send(datagram []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, server := range c.servers {
		_ = server.SetReadDeadline(time.Now().Add(udpSilence))
	}
	c.last = bytes.Clone(datagram)
	if _, err := c.servers[c.use].Write(datagram); errors.Is(err, syscall.ECONNREFUSED) { // an earlier one was refused
		c.useNext()
	}
}

// refused says that nobody listens at a server, yet.
func (c *udpClient) refused(server int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if server == c.use {
		c.useNext()
	}
}

// useNext sends the last datagram to the next address, but never more than twice.
func (c *udpClient) useNext() {
	c.use = (c.use + 1) % len(c.servers)
	if c.last != nil {
		_, _ = c.servers[c.use].Write(c.last)
		c.last = nil
	}
}

// answerUDP passes a pod's datagrams to a client until it has been silent for long.
func (l *Loopback) answerUDP(socket net.PacketConn, c *udpClient) {
	var closers []io.Closer
	for _, server := range c.servers {
		closers = append(closers, server)
	}
	drop := l.keep(closers...)
	var all sync.WaitGroup
	for i := range c.servers {
		all.Go(func() {
			defer drop() // ends the others, too
			c.answer(socket, i)
		})
	}
	all.Wait()
}

func (c *udpClient) answer(socket net.PacketConn, server int) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.servers[server].Read(buffer)
		switch {
		case err == nil:
			_, _ = socket.WriteTo(buffer[:n], c.address)
		case errors.Is(err, syscall.ECONNREFUSED):
			c.refused(server)
		default:
			return
		}
	}
}
