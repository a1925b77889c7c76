package supervisor

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// poller waits for many descriptors in one epoll instance, which itself is
// waited for in the runtime's. A descriptor is in it only while somebody waits for
// it: see firstPause.
type poller struct {
	file *os.File // the epoll instance

	mu      sync.Mutex
	waiting map[int32]chan struct{} // guarded by mu; by descriptor, closed when it is ready
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	// What makes os.File wait in the runtime's poller; epoll itself never blocks here.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("make epoll instance non-blocking: %w", err)
	}
	p := &poller{file: os.NewFile(uintptr(fd), "epoll"), waiting: make(map[int32]chan struct{})}
	go p.loop()
	return p, nil
}

// close ends the poller. Nobody waits any more.
func (p *poller) close() { _ = p.file.Close() }

// wait returns when fd can be read or is at its end, or stop is closed. It is
// called by one goroutine at a time for a descriptor.
func (p *poller) wait(fd int, stop <-chan struct{}) {
	ready := make(chan struct{})
	p.mu.Lock()
	p.waiting[int32(fd)] = ready
	p.mu.Unlock()
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
	if err := p.control(unix.EPOLL_CTL_ADD, &event); err != nil {
		sleep(lastPause) // no memory for it: as if something had come
	} else {
		select {
		case <-ready:
		case <-stop:
		}
		_ = p.control(unix.EPOLL_CTL_DEL, &event)
	}
	p.mu.Lock()
	delete(p.waiting, int32(fd))
	p.mu.Unlock()
}

func (p *poller) control(op int, event *unix.EpollEvent) error {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return err
	}
	if inner := raw.Control(func(epoll uintptr) { err = unix.EpollCtl(int(epoll), op, int(event.Fd), event) }); inner != nil {
		return inner
	}
	return err
}

func (p *poller) loop() {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 64)
	for err == nil {
		err = raw.Read(func(epoll uintptr) bool {
			// To the last one: the runtime's poller tells of new ones only.
			for n := len(events); n == len(events); {
				n, _ = unix.EpollWait(int(epoll), events, 0) // -1 for an error, which comes back
				p.wake(events[:max(n, 0)])
			}
			return false
		})
	}
}

func (p *poller) wake(events []unix.EpollEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		if ready := p.waiting[e.Fd]; ready != nil {
			close(ready)
			delete(p.waiting, e.Fd)
		}
	}
}
