package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/appc/spec/schema/types"
	"github.com/coreos/go-systemd/v22/activation"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/manifest"
)

func TestClause_C_PRT_03_SocketsOfPorts(t *testing.T) {
	port := func(name, protocol string, number, count uint, activated bool) types.Port {
		return types.Port{Name: types.ACName(name), Protocol: protocol, Port: number, Count: count, SocketActivated: activated}
	}
	pod := func(name string, p types.Port) types.ExposedPort {
		return types.ExposedPort{Name: types.ACName(name), HostPort: 1, PodPort: &p}
	}
	tests := []struct {
		name    string
		ports   []types.Port
		exposed []types.ExposedPort
		want    []socket
		err     string
	}{
		{"none", nil, nil, nil, ""},
		{"C-PRT-06 not activated", []types.Port{port("web", "tcp", 80, 1, false)}, nil, nil, ""},
		{
			"C-PRT-01 one of each",
			[]types.Port{port("web", "tcp", 80, 1, true), port("dns", "UDP", 53, 1, true)},
			nil,
			[]socket{{"web", "tcp", 80}, {"dns", "udp", 53}},
			"",
		},
		{
			"C-PRT-03 range",
			[]types.Port{port("web", "tcp", 80, 3, true)},
			nil,
			[]socket{{"web", "tcp", 80}, {"web", "tcp", 81}, {"web", "tcp", 82}},
			"",
		},
		{"C-PRT-04 protocol", []types.Port{port("web", "sctp", 80, 1, true)}, nil, nil, `port "web": protocol "sctp"`},
		{"C-PRT-04 protocol of no socket", []types.Port{port("web", "sctp", 80, 1, false)}, nil, nil, ""},
		{
			"C-PRT-05 pod's port",
			[]types.Port{port("web", "tcp", 80, 1, true)},
			[]types.ExposedPort{pod("web", port("web", "", 8080, 2, false)), pod("dns", port("dns", "udp", 53, 1, true))},
			[]socket{{"web", "tcp", 8080}, {"web", "tcp", 8081}},
			"",
		},
		{
			"C-PRT-05 pod's wish",
			[]types.Port{port("web", "tcp", 80, 1, false)},
			[]types.ExposedPort{pod("web", port("x", "udp", 81, 1, true))},
			[]socket{{"web", "udp", 81}},
			"",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := socketsOf(manifest.App{App: &types.App{Ports: test.ports}}, test.exposed)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestClause_C_PRT_05_NamesAreUnique(t *testing.T) {
	app := func(name string, ports ...types.ACName) manifest.App {
		a := manifest.App{Name: name, App: &types.App{}}
		for _, port := range ports {
			a.App.Ports = append(a.App.Ports, types.Port{Name: port, Protocol: "tcp", Port: 80})
		}
		return a
	}
	exposed := []types.ExposedPort{{Name: "web", HostPort: 1}}
	tests := []struct {
		name    string
		apps    []manifest.App
		exposed []types.ExposedPort
		warning string
		err     string
	}{
		{"unique", []manifest.App{app("a", "web", "dns"), app("b", "db")}, exposed, "", ""},
		{"in one app", []manifest.App{app("a", "web", "web")}, nil, "", `app "a": ports: "web": two ports`},
		{"in two apps", []manifest.App{app("a", "web"), app("b", "web")}, nil, `apps "a" and "b" both have a port named "web"`, ""},
		{"of another name exposed", []manifest.App{app("a", "db"), app("b", "db")}, exposed, `a port named "db"`, ""},
		{"exposed", []manifest.App{app("a", "web"), app("b", "web")}, exposed, "", `app "b": ports: "web": app "a" has a port of that name`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			warnings, err := checkPortNames(test.apps, test.exposed)
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if text := strings.Join(warnings, "; "); !strings.Contains(text, test.warning) || (text == "") != (test.warning == "") {
				t.Errorf("warnings %q, want %q", text, test.warning)
			}
		})
	}
}

func TestListenEnv(t *testing.T) {
	own := []string{"A=1", "LISTEN_FDS=9", "LISTEN_PID=9", "LISTEN_FDNAMES=x"}
	got := listenEnv(own, []socket{{"web", "tcp", 80}, {"dns", "udp", 53}})
	if diff := cmp.Diff([]string{"A=1", "LISTEN_FDS=2", "LISTEN_FDNAMES=web:dns"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(own, listenEnv(own, nil)); diff != "" {
		t.Error(diff)
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

// dial connects from within the pod's network namespace and gives the line
// that the other side says.
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

func ports(list ...any) []map[string]any {
	var out []map[string]any
	for i := 0; i < len(list); i += 4 {
		out = append(out, map[string]any{"name": list[i], "protocol": list[i+1], "port": list[i+2], "count": list[i+3], "socketActivated": true})
	}
	return out
}

// Two apps serve on their own sockets, of both IP versions, and again after a
// restart; a third has none, and neither has a handler.
func TestClause_C_PRT_02_EachAppItsOwnSockets(t *testing.T) {
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

func TestClause_C_PRT_04_UnknownProtocolRefused(t *testing.T) {
	p := launch(t, []testApp{{Name: "web", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "ports": ports("http", "sctp", 80, 1)}}})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `app "web": port "http": protocol "sctp"`) {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}

func TestClause_C_PRT_02_SocketTakenByAnotherApp(t *testing.T) {
	p := launch(t, []testApp{
		{Name: "a", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "ports": ports("x", "tcp", 80, 1)}},
		{Name: "b", App: map[string]any{"exec": []string{"/bin/sleep", "1000"}, "ports": ports("y", "tcp", 80, 1)}},
	})
	if code := p.exits(); code != 1 || !strings.Contains(p.messages(), `app "b": open socket of port "y"`) {
		t.Errorf("exit code %d, messages\n%s", code, p.messages())
	}
}
