package metadata

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// maxConnections are open at once; more wait to be accepted.
	maxConnections = 1024
	// patience is how long a connection may go without a request once others wait.
	patience = 100 * time.Millisecond
	// requestTime is how long it may in any case, and answerTime how long its
	// client may take to read the answer.
	requestTime = 5 * time.Second
	answerTime  = 5 * time.Second
	// lingerTime and maxLinger bound what is read of a request that has its
	// answer already.
	lingerTime = time.Second
	maxLinger  = 4 * maxForm
	// acceptPause is the wait after an accept that failed for want of descriptors.
	acceptPause = 50 * time.Millisecond
)

// Server is the metadata service of a pod at its address.
type Server struct {
	service  *service
	listener *net.TCPListener
	log      *slog.Logger

	slots   chan struct{} // one in it for each connection
	closing chan struct{} // closed by Close
	running sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]time.Time // guarded by mu: the open ones; without a request since then, or zero
}

// Start serves pod on a loopback address of the calling thread's network
// namespace until Close. It returns as soon as the address is taken. The error
// is ErrNoLoopback where that namespace has no loopback interface that is up.
func Start(pod Pod, log *slog.Logger) (*Server, error) {
	service, err := newService(pod)
	if err != nil {
		return nil, err
	}
	listener, err := listen(pod.Ports)
	if err != nil {
		return nil, err
	}
	s := &Server{
		service: service, listener: listener, log: log,
		slots:   make(chan struct{}, maxConnections),
		closing: make(chan struct{}),
		conns:   map[*net.TCPConn]time.Time{},
	}
	s.running.Go(s.serve)
	return s, nil
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
		_ = c.SetDeadline(time.Unix(1, 0))
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
			s.running.Go(func() { s.converse(c) })
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

// converse answers the request that comes on c, and ends c.
func (s *Server) converse(c *net.TCPConn) {
	defer func() { <-s.slots }()
	defer s.end(c)
	if !s.extend(c, time.Now(), requestTime) {
		return
	}
	a, unread, err := s.service.exchange(c)
	if err != nil {
		return
	}
	now := time.Now()
	if !s.extend(c, time.Time{}, answerTime) || a.write(c, now) != nil || !unread {
		return
	}
	// To close with something unread would reset the connection, and the client
	// might never see its answer (RFC 9112, section 9.6).
	if c.CloseWrite() == nil && s.extend(c, time.Time{}, lingerTime) {
		_, _ = io.CopyN(io.Discard, c, maxLinger)
	}
}

// extend gives c time for what comes next, and notes since when it has been
// without a request. It is false when the service ends.
func (s *Server) extend(c *net.TCPConn, silent time.Time, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closing:
		return false
	default:
	}
	s.conns[c] = silent
	return c.SetDeadline(time.Now().Add(limit)) == nil
}

func (s *Server) end(c *net.TCPConn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close()
}

// takeSlot waits until another connection may be there, and hurries those that
// say nothing. It is false when the service ends.
func (s *Server) takeSlot() bool {
	for {
		select {
		case s.slots <- struct{}{}:
			return true
		default:
		}
		retry := time.NewTimer(s.dropSilent(time.Now()))
		select {
		case s.slots <- struct{}{}:
			retry.Stop()
			return true
		case <-s.closing:
			retry.Stop()
			return false
		case <-retry.C:
		}
	}
}

// dropSilent drops the connection that has been without a request for the
// longest time, if that was longer than patience. It gives the time after which
// it is worth trying again.
func (s *Server) dropSilent(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest *net.TCPConn
	since := now
	for c, t := range s.conns {
		if !t.IsZero() && t.Before(since) {
			oldest, since = c, t
		}
	}
	if rest := patience - now.Sub(since); rest > 0 {
		return rest
	}
	s.conns[oldest] = time.Time{}
	_ = oldest.SetDeadline(now)
	return patience
}
