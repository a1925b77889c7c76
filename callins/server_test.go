package callins

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawCall is a caller that may break the protocol.
func rawCall(t *testing.T, p *testPod) conn {
	t.Helper()
	c, err := dial(limited(t), p.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// descriptorCount is the number of descriptors of the pod's supervisor.
func (p *testPod) descriptorCount() int {
	p.t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/fd")
	if err != nil {
		p.t.Fatal(err)
	}
	return len(entries)
}

// Whatever a caller sends, it gets an error at most, no descriptor
// is kept, and a command of another caller runs on.
func TestHostileCallersHarmNoOther(t *testing.T) {
	t.Parallel() // it waits for a limit
	p := newPod(t, sleeper)
	bystander := p.caller("run", shell(t, "echo ready; read line; exit 7"), "app")
	stdin, err := bystander.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	startUntil(t, bystander, "ready\n")
	stalled := rawCall(t, p) // sends nothing while the others call
	defer stalled.Close()
	finish(t, p.caller("status", "")) // the stalled one has been accepted
	before := p.descriptorCount()

	files := func(n int) []byte {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null(t).Fd())
		}
		return unix.UnixRights(fds...)
	}
	settings, err := sealed("settings", []byte(shell(t, "true")))
	if err != nil {
		t.Fatal(err)
	}
	defer settings.Close()
	folder, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	socket, err := rawCall(t, p).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	// passed are settings and null devices, but for stream number.
	passed := func(number int, f *os.File) []byte {
		fds := []int{int(settings.Fd()), int(null(t).Fd()), int(null(t).Fd()), int(null(t).Fd())}
		fds[1+number] = int(f.Fd())
		return unix.UnixRights(fds...)
	}
	tests := []struct {
		name, text string
		control    []byte
		want       string
	}{
		{"no JSON", "garbage", nil, "decode message"},
		{"no JSON, with descriptors", "garbage", files(4), "decode message"},
		{"empty", "", nil, "gone"},
		{"too long", strings.Repeat(" ", maxPacket+1), files(1), "longer than"},
		{"too many descriptors", `{"version":4,"call":"run","app":"app"}`, files(40), "too many descriptors"},
		{"other version", `{"version":1,"call":"status"}`, nil, "unknown protocol version 1, want 4"},
		{"unknown call", `{"version":4,"call":"reboot"}`, files(2), `unknown call "reboot"`},
		{"run without descriptors", `{"version":4,"call":"run","app":"app"}`, nil, "call without settings"},
		{"run with settings that could block", `{"version":4,"call":"run","app":"app"}`, files(4), "not a sealed memory file"},
		{"run without streams", `{"version":4,"call":"run","app":"app"}`, unix.UnixRights(int(settings.Fd())), "call with 0 streams"},
		{"run with a folder", `{"version":4,"call":"run","app":"app"}`, passed(0, folder), "descriptor 0 of the command is neither a pipe nor the null device"},
		{"run with a socket", `{"version":4,"call":"run","app":"app"}`, passed(2, socket), "descriptor 2 of the command is neither a pipe nor the null device"},
		{"run with a file", `{"version":4,"call":"run","app":"app"}`, passed(1, settings), "descriptor 1 of the command is neither a pipe nor the null device"},
		{"attach with descriptors", `{"version":4,"call":"attach","app":"x"}`, files(4), "no such app"},
		{"long name", `{"version":4,"call":"attach","app":"` + strings.Repeat("x", maxPacket-50) + `"}`, nil, "app \"xxx"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := rawCall(t, p)
			if _, _, err := c.WriteMsgUnix([]byte(test.text), test.control, nil); err != nil {
				t.Fatal(err)
			}
			if test.text == "" {
				c.Close()
				return
			}
			if _, _, err := c.next(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
			c.Close()
		})
	}
	eventually(t, "the server closes what it was passed", func() bool { return p.descriptorCount() <= before })
	io.WriteString(stdin, "\n")
	if got := exitCode(t, bystander.Wait()); got != 7 {
		t.Errorf("the bystander has exit code %d, want 7", got)
	}
}

// A caller that sends an invalid note loses its own command.
func TestAHostileNoteEndsItsOwnCommand(t *testing.T) {
	p := newPod(t, sleeper)
	settings, err := sealed("settings", []byte(shell(t, "exec sleep infinity")))
	if err != nil {
		t.Fatal(err)
	}
	defer settings.Close()
	before := p.descriptorCount()
	none := null(t)
	for name, text := range map[string]string{
		"no JSON": "x", "a signal that is not forwarded": `{"signal":9}`, "no signal": `{}`, "negative": `{"signal":-1}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := rawCall(t, p)
			defer c.Close()
			request := request{Version: protocolVersion, Call: requestRun, App: "app"}
			if err := c.send(request, []*os.File{settings, none, none, none}); err != nil {
				t.Fatal(err)
			}
			fds := unix.UnixRights(int(none.Fd()))
			if _, _, err := c.WriteMsgUnix([]byte(text), fds, nil); err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.next(kindStarted); err != nil {
				t.Fatal(err)
			}
			r, _, err := c.next(kindExit)
			if err != nil || r.Code != 137 {
				t.Errorf("exit code %d, %v, want 137", r.Code, err)
			}
		})
	}
	eventually(t, "the server closes what it was passed", func() bool { return p.descriptorCount() <= before })
}

func TestOnlyRootReachesTheSocket(t *testing.T) {
	p := newPod(t, sleeper)
	info, err := os.Stat(p.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket has mode %v", info.Mode())
	}
	for dir := filepath.Dir(p.socket); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if err := asUser(1000, func() error { return statusError(t, p) }); !errors.Is(err, unix.EACCES) {
		t.Errorf("user 1000 connects: %v, want EACCES", err)
	}
	if err := os.Chmod(p.socket, 0o666); err != nil {
		t.Fatal(err)
	}
	err = asUser(1000, func() error { return statusError(t, p) })
	if err == nil || !strings.Contains(err.Error(), "caller has user ID 1000, want 0") {
		t.Errorf("user 1000 is answered %v", err)
	}
}

func statusError(t *testing.T, p *testPod) error {
	_, err := askDocument(t.Context(), Streams{Socket: p.socket}, requestStatus)
	return err
}

// asUser calls f on a thread with another effective user ID.
func asUser(uid int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			result <- errno
			return
		}
		result <- f()
	}()
	return <-result
}

func TestListenReplacesOldSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	for range 2 {
		listener, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		listener.SetUnlinkOnClose(false) // as a supervisor that was killed leaves it
		listener.Close()
	}
}

// What the other end sent last arrives although it was closed
// with something unread, as when a signal crosses the exit.
func TestWhatWasSentBeforeAResetIsReceived(t *testing.T) {
	a, b := pair(t)
	if err := b.send(note{Signal: 15}, nil); err != nil {
		t.Fatal(err)
	}
	if err := a.send(reply{Kind: kindExit, Code: 3}, nil); err != nil {
		t.Fatal(err)
	}
	a.Close()
	r, _, err := b.next(kindExit)
	if err != nil || r.Code != 3 {
		t.Errorf("received %+v, %v, want the exit", r, err)
	}
	if _, err := b.receive(&r); !errors.Is(err, io.EOF) {
		t.Errorf("then %v, want EOF", err)
	}
}

func pair(t *testing.T) (a, b conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(timeLimit)); err != nil {
			t.Fatal(err)
		}
		ends[i] = conn{c.(*net.UnixConn)}
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

// The last packet may come, and the other end be closed, at any moment of a read. Without its second read,
// receive misses about one packet in 20,000 rounds.
func TestTheLastPacketComesBeforeTheEnd(t *testing.T) {
	for round := range 10_000 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fds[0]), "near")
		c, err := net.FileConn(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		var begin atomic.Bool
		sent := make(chan error, 1)
		go func() {
			for !begin.Load() { // both sides at once
			}
			for range round % 10000 {
				begin.Load()
			}
			_, err := unix.Write(fds[1], []byte(`{"kind":"exit","code":3}`))
			sent <- errors.Join(err, unix.Close(fds[1]))
		}()
		begin.Store(true)
		var r reply
		_, err = conn{c.(*net.UnixConn)}.receive(&r)
		if err := errors.Join(err, <-sent, c.Close()); err != nil || r.Code != 3 {
			t.Errorf("round %d: %+v, %v", round, r, err)
		}
	}
}

// A root app can stop a command, which then takes its caller's signals nevertheless.
func TestRunEndsAStoppedCommand(t *testing.T) {
	p := newPod(t, sleeper)
	for _, sig := range endSignals {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := p.caller("run", shell(t, "echo $$; kill -STOP $$; sleep infinity"), "app")
			pid := strings.TrimSpace(startUntil(t, cmd, "\n"))
			status := fmt.Sprintf("/proc/%d/root/proc/%s/status", p.cmd.Process.Pid, pid) // the pod's /proc
			eventually(t, "the command is stopped", func() bool {
				text, err := os.ReadFile(status)
				return err == nil && strings.Contains(string(text), "State:\tT")
			})
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if got := exitCode(t, cmd.Wait()); got != 128+int(sig) {
				t.Errorf("exit code %d, want %d", got, 128+int(sig))
			}
		})
	}
}
