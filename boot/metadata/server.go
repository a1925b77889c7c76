package metadata

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
)

const (
	// maxConnections is how many are open at once if the process may have that many
	// descriptors, see connections; more wait to be accepted. Each takes some 10 KiB,
	// and all that announce a form (firstChunk) leave half of maxForms.
	maxConnections = 1024
	// patience is how long a connection may take for its request, for its answer
	// or to linger when others wait to be accepted.
	patience = 100 * time.Millisecond
	// requestTime is how long a client may always take to send its request, and
	// answerTime how long it may take to read the answer.
	requestTime = 5 * time.Second
	answerTime  = 5 * time.Second
	// lingerTime and maxLinger bound how much is read of a request that has been
	// answered.
	lingerTime = time.Second
	maxLinger  = 4 * maxForm
	// acceptPause is the wait after an accept that failed because descriptors ran out.
	acceptPause = 50 * time.Millisecond
)

// wait is what a connection is blocked on.
type wait struct {
	since   time.Time // zero if not on its client
	request bool      // on the client's request; otherwise until the client takes the answer
}

// Server is the metadata service of a pod at its address.
type Server struct {
	service  *service
	listener *net.TCPListener
	log      *slog.Logger

	slots   chan struct{} // one in it for each connection
	closing chan struct{} // closed by Close
	running sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]wait // guarded by mu: the open ones that are not dropped
}

// Start serves pod on a loopback address of the calling thread's network
// namespace until Close. It returns as soon as the address is taken. The error
// is ErrNoLoopback if that namespace has no loopback interface that is up.
func Start(pod plan.Metadata, log *slog.Logger) (*Server, error) {
	service, err := newService(pod)
	if err != nil {
		return nil, err
	}
	limit, err := connections()
	if err != nil {
		return nil, err
	}
	listener, err := listen(pod.Ports)
	if err != nil {
		return nil, err
	}
	s := &Server{
		service: service, listener: listener, log: log,
		slots:   make(chan struct{}, limit),
		closing: make(chan struct{}),
		conns:   map[*net.TCPConn]wait{},
	}
	s.running.Go(s.serve)
	return s, nil
}

// connections returns how many connections may be open at once: at most a quarter
// of the process's descriptors, because the supervisor needs some for each app.
func connections() (int, error) {
	var descriptors unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors); err != nil {
		return 0, os.NewSyscallError("getrlimit", err)
	}
	return int(max(1, min(maxConnections, descriptors.Cur/4))), nil
}

// URL is the value of AC_METADATA_URL. It is a secret of the pod.
func (s *Server) URL() string {
	return "http://" + s.listener.Addr().String() + "/" + s.service.token
}

// Close ends the service and every connection to it, and returns when none is
// left. It is called once.
func (s *Server) Close() error {
	close(s.closing)
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		s.drop(c)
	}
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// serve accepts connections until Close.
func (s *Server) serve() {
	for s.takeSlot() {
		c, err := s.listener.AcceptTCP()
		if err == nil {
			s.begin(c) // here, so that the first connection has waited for the longest time
			s.running.Go(func() { s.serveConnection(c) })
			continue
		}
		<-s.slots
		if errors.Is(err, net.ErrClosed) {
			return
		}
		s.log.Warn("cannot accept a connection to the metadata service", "error", err)
		select {
		case <-s.closing:
		case <-time.After(acceptPause):
		}
	}
}

// serveConnection answers the request that comes on c, and ends c.
func (s *Server) serveConnection(c *net.TCPConn) {
	defer func() { <-s.slots }()
	defer s.end(c)
	a, unread, err := s.service.exchange(&requestReader{TCPConn: c, server: s, since: time.Now()})
	if err != nil {
		return
	}
	now := time.Now()
	if !s.extend(c, answerTime) || a.write(c, now) != nil || !unread {
		return
	}
	// Closing with unread bytes would reset the connection, and the client
	// might never see its answer (RFC 9112, section 9.6).
	if c.CloseWrite() == nil && s.extend(c, lingerTime) {
		_, _ = io.CopyN(io.Discard, c, maxLinger)
	}
}

// begin limits the time that c has for its request, to none if the service ends.
func (s *Server) begin(c *net.TCPConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.conns[c] = wait{now, true}
	_ = c.SetDeadline(now.Add(requestTime))
	select {
	case <-s.closing:
		s.drop(c)
	default:
	}
}

// requestReader reads a request. While it reads, the connection waits for its client;
// otherwise it waits for the service.
type requestReader struct {
	*net.TCPConn
	server *Server
	since  time.Time
}

// Read implements io.Reader.
func (r *requestReader) Read(b []byte) (int, error) {
	r.server.setWait(r.TCPConn, wait{r.since, true})
	defer r.server.setWait(r.TCPConn, wait{})
	return r.TCPConn.Read(b)
}

func (s *Server) setWait(c *net.TCPConn, w wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[c]; ok {
		s.conns[c] = w
	}
}

// extend limits the time of the next step of c. It returns false if c has been dropped.
func (s *Server) extend(c *net.TCPConn, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[c]; !ok {
		return false
	}
	now := time.Now()
	s.conns[c] = wait{since: now}
	return c.SetDeadline(now.Add(limit)) == nil
}

func (s *Server) end(c *net.TCPConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close()
}

// takeSlot waits until one more connection may be open, and meanwhile drops connections that
// wait too long for their clients. It returns false if the service ends.
func (s *Server) takeSlot() bool {
	for {
		select {
		case s.slots <- struct{}{}:
			return true
		default:
		}
		select {
		case s.slots <- struct{}{}:
			return true
		case <-s.closing:
			return false
		case <-time.After(s.dropSlowest(time.Now())):
		}
	}
}

// dropSlowest drops the connection that has waited for its client for the
// longest time, if that was longer than patience. It returns the time after which
// to try again.
func (s *Server) dropSlowest(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		slowest, since := s.slowest(now)
		if rest := patience - now.Sub(since); rest > 0 {
			return rest
		}
		if s.conns[slowest].request && unread(slowest) {
			// Its client has sent something: it waits for the service, which is busy.
			s.conns[slowest] = wait{now, true}
			continue
		}
		s.drop(slowest)
		return patience
	}
}

// slowest returns the connection that has waited for its client for the longest time, nil
// and now if there is none. The caller holds mu.
func (s *Server) slowest(now time.Time) (slowest *net.TCPConn, since time.Time) {
	since = now
	for c, w := range s.conns {
		if !w.since.IsZero() && w.since.Before(since) {
			slowest, since = c, w.since
		}
	}
	return slowest, since
}

// unread reports whether c has received bytes that have not been read.
func unread(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && n > 0
}

// drop ends all reading and writing of c. The caller holds mu.
func (s *Server) drop(c *net.TCPConn) {
	delete(s.conns, c)
	_ = c.SetDeadline(time.Unix(1, 0))
}
