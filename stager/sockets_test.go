package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/surroundings"
)

// inNetwork runs f on a thread in the pod's network namespace.
func (p *testPod) inNetwork(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is of no other use now
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid))
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// dial connects from within the pod's network namespace and returns the line that the other side
// sends.
func (p *testPod) dial(network, address string) (line string) {
	p.t.Helper()
	p.must(p.inNetwork(func() error {
		conn, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer conn.Close()
		line, err = bufio.NewReader(conn).ReadString('\n')
		return err
	}))
	return strings.TrimSpace(line)
}

// Two apps serve on their own sockets, for both IP versions, also after a restart. A third app has
// no sockets, and neither has a handler.
func TestEachAppGetsItsOwnSockets(t *testing.T) {
	clause.Covers(t, "C-PRT-02")
	handler := []map[string]any{{"name": "pre-start", "exec": []string{"/bin/sh", "-c", "env; ls /proc/self/fd; echo end"}}}
	p := launch(t, []testApp{
		{Name: "web", App: map[string]any{"exec": []string{"/probe", "probe", "serve", "web"}, "ports": ports("http", "tcp", 80, 2, "dns", "udp", 53, 1), "eventHandlers": handler}},
		{Name: "api", App: map[string]any{"exec": []string{"/probe", "probe", "serve", "api"}, "ports": ports("rpc", "tcp", 90, 1)}},
		{Name: "none", App: map[string]any{"exec": []string{"/bin/sh", "-c", "env; ls /proc/self/fd; echo end; exec sleep 1000"}}},
	}, withConfig("restart", "always"), withPod("ports", []any{
		map[string]any{"name": "rpc", "hostPort": 1, "podPort": map[string]any{"name": "rpc", "protocol": "tcp", "port": 9090}},
	}))
	p.isReady()
	for range 2 {
		for _, want := range []string{"http tcp [::]:80", "http tcp [::]:81", "dns udp [::]:53"} {
			if got := p.line("web"); got != want {
				t.Errorf("web has %q, want %q", got, want)
			}
		}
		if got := p.line("api"); got != "rpc tcp [::]:9090" {
			t.Errorf("api has %q", got)
		}
		for _, dial := range [][3]string{{"tcp4", "127.0.0.1:80", "web"}, {"tcp6", "[::1]:81", "web"}, {"tcp4", "127.0.0.1:9090", "api"}} {
			if got := p.dial(dial[0], dial[1]); got != dial[2] {
				t.Errorf("%s answers %q, want %q", dial[1], got, dial[2])
			}
		}
	}
	checkNoSockets(t, p)
}

func checkNoSockets(t *testing.T, p *testPod) {
	t.Helper()
	var none []string
	for line := p.line("none"); line != "end"; line = p.line("none") {
		none = append(none, line)
	}
	text := strings.Join(none, "\n")
	if strings.Contains(text, "LISTEN_") || !strings.HasSuffix(text, "0\n1\n2\n3") {
		t.Errorf("an app without sockets has\n%s", text)
	}
	text, _, _ = strings.Cut(p.callIn("logs", "web"), "end\n")
	if strings.Contains(text, "LISTEN_") || !strings.HasSuffix(text, "\n0\n1\n2\n3\n") {
		t.Errorf("a handler has\n%s", text)
	}
}

// The pod goes on, but nothing waits for an app that has ended for good.
func TestWhatAnAppInheritsEndsWithIt(t *testing.T) {
	p := launch(t, []testApp{
		{Name: "web", App: map[string]any{"exec": []string{"/bin/echo", "last"}, "ports": ports("http", "tcp", 80, 1)}},
	}, withConfig("exitPolicy", "never"))
	p.isReady()
	surroundings.Eventually(t, "a refused client", func() bool {
		return errors.Is(p.inNetwork(func() error {
			conn, err := net.Dial("tcp", "127.0.0.1:80")
			if err == nil {
				conn.Close()
			}
			return err
		}), unix.ECONNREFUSED)
	})
	if output, err := io.ReadAll(p.output["web"]); string(output) != "last\n" || err != nil {
		t.Errorf("the pipe of stdout has %q, %v", output, err)
	}
}

func TestUnknownSocketProtocolIsRefused(t *testing.T) {
	clause.Covers(t, "C-PRT-04")
	p := launch(t, []testApp{{Name: "web", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "ports": ports("http", "sctp", 80, 1)}}})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `app "web": port "http": protocol "sctp"`) {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

func TestSocketTakenByAnotherAppIsRefused(t *testing.T) {
	clause.Covers(t, "C-PRT-02")
	p := launch(t, []testApp{
		{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "ports": ports("x", "tcp", 80, 1)}},
		{Name: "b", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "ports": ports("y", "tcp", 80, 1)}},
	})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `app "b": open socket of port "y"`) {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

// serveOne is a socket-activated server: it lists its sockets and answers one
// connection on each of the streams, in turn, with its answer.
func serveOne(answer string) int {
	files := activation.Files(true)
	var listeners []net.Listener
	for _, f := range files {
		if l, err := net.FileListener(f); err == nil {
			listeners = append(listeners, l)
			fmt.Fprintln(os.Stdout, f.Name(), "tcp", l.Addr())
		} else if c, err := net.FilePacketConn(f); err == nil {
			fmt.Fprintln(os.Stdout, f.Name(), "udp", c.LocalAddr())
		}
	}
	for _, l := range listeners {
		conn, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
			return 1
		}
		fmt.Fprintln(conn, answer)
		conn.Close()
	}
	return 0
}

// probe is this program inside an app.
func probe(what string, args []string) int {
	switch what {
	case "serve":
		return serveOne(args[0])
	case "notify":
		return notifyOnSignal()
	}
	fmt.Fprintln(os.Stdout, "no probe", what)
	return 1
}

func ports(list ...any) []map[string]any {
	var out []map[string]any
	for i := 0; i < len(list); i += 4 {
		out = append(out, map[string]any{"name": list[i], "protocol": list[i+1], "port": list[i+2], "count": list[i+3], "socketActivated": true})
	}
	return out
}
