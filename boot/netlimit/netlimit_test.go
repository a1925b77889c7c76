package netlimit

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/surroundings"
)

// twoSides are network namespaces with a wire between them. Each function
// runs on a thread that is in its namespace, one after the other, and says
// what went wrong.
type twoSides struct{ here, there chan func() }

// side is a thread in a new network namespace, until the test ends.
func side(t *testing.T) chan func() {
	t.Helper()
	work, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the namespace
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { close(work) })
	return work
}

// in runs f on a side and waits for it.
func in(t *testing.T, side chan func(), f func() error) {
	t.Helper()
	done := make(chan error)
	side <- func() { done <- f() }
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func newTwoSides(t *testing.T) twoSides {
	t.Helper()
	s := twoSides{side(t), side(t)}
	var thread int
	in(t, s.there, func() error { thread = unix.Gettid(); return nil })
	in(t, s.here, func() error {
		wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "here"}, PeerName: "there"}
		if err := netlink.LinkAdd(wire); err != nil {
			return err
		}
		peer, err := netlink.LinkByName("there")
		if err != nil {
			return err
		}
		return netlink.LinkSetNsPid(peer, thread)
	})
	for name, side := range map[string]chan func(){"here": s.here, "there": s.there} {
		in(t, side, func() error { return address(name) })
	}
	return s
}

func address(name string) error {
	for link, ip := range map[string]string{name: map[string]string{"here": "10.9.9.1/24", "there": "10.9.9.2/24"}[name], "lo": ""} {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		if ip != "" {
			a, err := netlink.ParseAddr(ip)
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(l, a); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
	}
	return nil
}

// send takes n bytes from one side to an address on another and returns the time
// that it took.
func send(t *testing.T, from, to chan func(), address string, n int64) time.Duration {
	t.Helper()
	var listener net.Listener
	in(t, to, func() (err error) { listener, err = net.Listen("tcp4", address+":0"); return err })
	defer listener.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, conn)
			conn.Close()
		}
		received <- err
	}()
	begun := time.Now()
	in(t, from, func() error {
		conn, err := net.Dial("tcp4", listener.Addr().String())
		if err != nil {
			return err
		}
		_, err = conn.Write(make([]byte, n))
		conn.Close()
		return err
	})
	if err := <-received; err != nil {
		t.Fatal(err)
	}
	return time.Since(begun)
}

// A quarter of a megabyte takes at least a fifth of a second at a megabyte a
// second, of which the first 32 KiB are free.
func TestBothDirectionsAreLimitedButNotLoopback(t *testing.T) {
	surroundings.Root(t)
	clause.Covers(t, "C-NBW-01")
	s := newTwoSides(t)
	const rate, amount = 1 << 20, 1 << 18
	in(t, s.here, func() error { return Limit(rate) })
	if took := send(t, s.here, s.there, "10.9.9.2", amount); took < 200*time.Millisecond {
		t.Errorf("sent in %v", took)
	}
	if took := send(t, s.there, s.here, "10.9.9.1", amount); took < 200*time.Millisecond {
		t.Errorf("received in %v", took)
	}
	in(t, s.here, func() error { return unlimited("lo") })
	in(t, s.there, func() error { return unlimited("there") })
	// 32 MB would take half a minute.
	send(t, s.here, s.here, "127.0.0.1", 32<<20)
}

func unlimited(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	list, err := netlink.QdiscList(link)
	for _, q := range list {
		if q.Type() == "tbf" || q.Type() == "ingress" {
			return fmt.Errorf("%s has a %s queue", name, q.Type())
		}
	}
	return err
}

func TestExtremeLimitsAreAccepted(t *testing.T) {
	surroundings.Root(t)
	for _, rate := range []uint64{1 << 10, 1<<32 - 1, 1 << 32, maxRate, 1<<63 - 1} {
		s := newTwoSides(t)
		in(t, s.here, func() error { return Limit(rate) })
	}
}
