package plain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

// timeLimit ends each process of a test and each wait: a test that hangs fails.
const timeLimit = time.Minute

// TestMain is also the program whose plain calls are made in C. The calls that reach it are Go's, which it says on
// descriptor 4.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	callIn, ok := callins.CallIns()[name]
	if !ok {
		surroundings.SettleAsRoot()
		os.Exit(m.Run())
	}
	fmt.Fprint(os.NewFile(4, "by"), "Go")
	os.Exit(callins.ExitCode(callIn(context.Background(), Streams(), os.Args[1:]), os.Stderr))
}

// A fake is a supervisor at the socket's place in a mount namespace of its callers.
type fake struct {
	t        *testing.T
	dir      string
	listener *net.UnixListener
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, dir: t.TempDir()}
	var err error
	f.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: f.dir + "/control.sock", Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.listener.Close() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{names.Run, names.Status} {
		if err := os.Symlink(self, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// A caller is a call-in that runs.
type caller struct {
	t              *testing.T
	cmd            *exec.Cmd
	settings       *os.File // the write end
	by             *os.File
	stdout, stderr *bytes.Buffer
}

// call returns a call-in, with the pipe for its settings, that is not started.
func (f *fake) call(name string, args ...string) *caller {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	f.t.Cleanup(cancel)
	const enter = `mount -t tmpfs none /run && ln -s "$0" ` + names.RunDir + ` && shift && exec "$0/` // the call-ins' folder
	script := enter + name + `" "$@"`
	c := &caller{t: f.t, stdout: new(bytes.Buffer), stderr: new(bytes.Buffer)}
	c.cmd = exec.CommandContext(ctx, "unshare", append([]string{"-m", "sh", "-c", script, f.dir, ""}, args...)...)
	c.cmd.Stdout, c.cmd.Stderr = c.stdout, c.stderr
	read, write := c.pipe()
	byRead, byWrite := c.pipe()
	c.settings, c.by = write, byRead
	c.cmd.ExtraFiles = []*os.File{read, byWrite}
	return c
}

func (c *caller) pipe() (read, write *os.File) {
	c.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { read.Close(); write.Close() })
	return read, write
}

// start starts the call-in and closes the pipe of its settings.
func (c *caller) start(settings string) {
	c.t.Helper()
	go func() { // they may not fit into the pipe
		_, _ = io.WriteString(c.settings, settings)
		c.settings.Close()
	}()
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	for _, f := range c.cmd.ExtraFiles {
		f.Close()
	}
}

// end waits for the call-in, and returns its exit code and the language that it was in at its end.
func (c *caller) end() (code int, by string) {
	c.t.Helper()
	_ = c.cmd.Wait() // its status is the answer
	language, err := io.ReadAll(c.by)
	if err != nil {
		c.t.Fatal(err)
	}
	if len(language) == 0 {
		language = []byte("C")
	}
	return c.cmd.ProcessState.ExitCode(), string(language)
}

// A served is the supervisor's side of a call.
type served struct {
	t     *testing.T
	conn  *net.UnixConn
	files []*os.File // of the request
}

// accept takes the next call with its request. C may have connected and left without one.
func (f *fake) accept(request string) *served {
	f.t.Helper()
	if err := f.listener.SetDeadline(time.Now().Add(timeLimit)); err != nil {
		f.t.Fatal(err)
	}
	for {
		c, err := f.listener.AcceptUnix()
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { c.Close() })
		s := &served{t: f.t, conn: c}
		if got := s.receive(); got == request {
			return s
		} else if got != "" {
			f.t.Fatalf("the caller sent %q, want %q", got, request)
		}
	}
}

// receive receives a packet; "" at the connection's end.
func (s *served) receive() string {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(timeLimit)); err != nil {
		s.t.Fatal(err)
	}
	text, control := make([]byte, 16<<10), make([]byte, 256)
	n, cn, _, _, err := s.conn.ReadMsgUnix(text, control)
	if err != nil && !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			s.t.Fatal(err)
		}
		for _, fd := range fds {
			s.files = append(s.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	s.t.Cleanup(s.close)
	return string(text[:n])
}

// expect receives a packet, which must be text.
func (s *served) expect(text string) {
	s.t.Helper()
	if got := s.receive(); got != text {
		s.t.Fatalf("the caller sent %q, want %q", got, text)
	}
}

// close closes the descriptors of the request, as a command that ends does.
func (s *served) close() {
	for _, f := range s.files {
		f.Close()
	}
}

// exit reports the command's end, and that all output has been passed on.
func (s *served) exit(text string) {
	s.t.Helper()
	s.reply(text)
	s.close()
	s.conn.Close()
}

func (s *served) reply(text string, control ...byte) {
	s.t.Helper()
	if _, _, err := s.conn.WriteMsgUnix([]byte(text), control, nil); err != nil {
		s.t.Fatal(err)
	}
}

// settings returns what the request passes as settings, which nobody can change any more.
func (s *served) settings() string {
	s.t.Helper()
	if seals, err := unix.FcntlInt(s.files[0].Fd(), unix.F_GET_SEALS, 0); err != nil || seals != allSeals {
		s.t.Errorf("settings with the seals %#x, %v", seals, err)
	}
	text := make([]byte, 1<<20)
	n, err := s.files[0].ReadAt(text, 0)
	if err != nil && err != io.EOF {
		s.t.Fatal(err)
	}
	return string(text[:n])
}

const (
	runRequest    = `{"version":4,"call":"run","app":"app"}`
	statusRequest = `{"version":4,"call":"status"}`
	settings      = `{"exec":["/bin/true","\u0026"],"user":"0","group":"0"}` // as a daemon in Go writes it
	started       = `{"kind":"started"}`
)

func wantEnd(t *testing.T, c *caller, code int, by, stdout, stderr string) {
	t.Helper()
	gotCode, gotBy := c.end()
	if gotCode != code || gotBy != by || c.stdout.String() != stdout || c.stderr.String() != stderr {
		t.Errorf("exit %d by %s, stdout %.99q, stderr %.99q, want %d by %s, %.99q, %.99q",
			gotCode, gotBy, c.stdout, c.stderr, code, by, stdout, stderr)
	}
}

// runningToPipe returns a call whose command runs, and the read end of the pipe that is its stdout.
func runningToPipe(t *testing.T) (c *caller, s *served, read *os.File) {
	t.Helper()
	f := newFake(t)
	c = f.call(names.Run, "app")
	read, write := c.pipe()
	c.cmd.Stdout = write
	c.start(settings)
	write.Close()
	s = f.accept(runRequest)
	s.reply(started)
	return c, s, read
}

func TestAPlainCommandIsRunInC(t *testing.T) {
	for reply, code := range map[string]int{`{"kind":"exit"}`: 0, `{"kind":"exit","code":42}`: 42} {
		f := newFake(t)
		c := f.call(names.Run, "app")
		c.start(settings)
		s := f.accept(runRequest)
		if got := s.settings(); got != settings {
			t.Errorf("settings %q, want %q", got, settings)
		}
		s.reply(started)
		fmt.Fprint(s.files[2], "out")
		fmt.Fprint(s.files[3], "err")
		s.exit(reply)
		wantEnd(t, c, code, "C", "out", "err")
	}
}

// A daemon may pass one pipe as stdout and stderr. Its order is kept, and a null device needs no pipe.
func TestOnePipeForBothStreamsStaysOne(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Run, "app")
	c.cmd.Stderr = c.stdout
	c.start(settings)
	s := f.accept(runRequest)
	s.reply(started)
	for i := range 100 {
		fmt.Fprint(s.files[2+i%2], i, "\n")
	}
	s.close()
	s.exit(`{"kind":"exit"}`)
	var want strings.Builder
	for i := range 100 {
		fmt.Fprint(&want, i, "\n")
	}
	wantEnd(t, c, 0, "C", want.String(), "")
}

// The caller's reader is slower than the command, which has more output than all pipes hold.
func TestASlowReaderGetsAll(t *testing.T) {
	c, s, read := runningToPipe(t)
	const size = 5 << 20
	wrote := make(chan error, 1)
	go func() {
		_, err := s.files[2].Write(make([]byte, size))
		s.close()
		_, _, errReply := s.conn.WriteMsgUnix([]byte(`{"kind":"exit"}`), nil, nil)
		wrote <- errors.Join(err, errReply, s.conn.Close())
	}()
	surroundings.Eventually(t, "the reader's pipe is full", func() bool {
		held, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
		return err == nil && held >= 256<<10
	})
	if got, err := io.Copy(io.Discard, read); got != size || err != nil {
		t.Errorf("read %d bytes, %v, want %d", got, err, size)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	wantEnd(t, c, 0, "C", "", "")
}

// The command's next write fails once its reader has gone, and the call ends as the command does.
func TestACommandWithoutReaderGetsSIGPIPE(t *testing.T) {
	c, s, read := runningToPipe(t)
	read.Close()
	polled := []unix.PollFd{{Fd: int32(s.files[2].Fd())}}
	if n, err := unix.Poll(polled, int(timeLimit.Milliseconds())); n != 1 || polled[0].Revents&unix.POLLERR == 0 {
		t.Errorf("the command's pipe has %#x, %v, want POLLERR", polled[0].Revents, err)
	}
	fmt.Fprint(s.files[3], "err")
	s.exit(`{"kind":"exit","code":141}`)
	wantEnd(t, c, 141, "C", "", "err")
}

// The command's last output is larger than its reader's pipe, and in the command's pipe when it ends.
func TestWhatIsLeftInTheCommandsPipeIsCopied(t *testing.T) {
	c, s, read := runningToPipe(t)
	const size = 400 << 10 // of at most 2 * 256 KiB
	if _, err := s.files[2].Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	s.close()
	s.exit(`{"kind":"exit"}`)
	c.sleeps()
	if got, err := io.Copy(io.Discard, read); got != size || err != nil {
		t.Errorf("read %d bytes, %v, want %d", got, err, size)
	}
	wantEnd(t, c, 0, "C", "", "")
}

// sleeps waits until the call sleeps, and goes on sleeping.
func (c *caller) sleeps() {
	c.t.Helper()
	asleep := 0
	surroundings.Eventually(c.t, "the call sleeps", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
		if asleep++; err != nil || !bytes.Contains(text, []byte(") S ")) {
			asleep = 0
		}
		return asleep == 20
	})
}

// A command that closes its output runs on, while its reader's pipe is full.
func TestAFullPipeWhoseWriterHasEndedTakesNoCPU(t *testing.T) {
	c, s, read := runningToPipe(t)
	size, err := unix.FcntlInt(read.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	slots := size / os.Getpagesize() // of a byte each: splice(2) joins none
	for i := range slots {
		fmt.Fprint(s.files[2], "x")
		surroundings.Eventually(t, "the byte has been copied", func() bool {
			held, err := unix.IoctlGetInt(int(read.Fd()), unix.TIOCINQ)
			return err == nil && held == i+1
		})
	}
	s.files[2].Close()
	c.sleeps()
	s.exit(`{"kind":"exit"}`)
	if text, err := io.ReadAll(read); len(text) != slots || err != nil {
		t.Errorf("read %d bytes, %v, want %d", len(text), err, slots)
	}
	wantEnd(t, c, 0, "C", "", "")
}

// Once its command has ended, a signal ends a call whose reader does not read.
func TestASignalEndsACallThatWaitsForItsReader(t *testing.T) {
	c, s, _ := runningToPipe(t)
	if _, err := s.files[2].Write(make([]byte, 400<<10)); err != nil {
		t.Fatal(err)
	}
	s.close()
	s.exit(`{"kind":"exit"}`)
	s.conn.Close()
	signals := time.NewTicker(10 * time.Millisecond) // one that comes before the end is for the command
	defer signals.Stop()
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	for {
		select {
		case <-signals.C:
			_ = c.cmd.Process.Signal(unix.SIGTERM)
			continue
		case <-ended:
		}
		break
	}
	if status := c.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGTERM {
		t.Errorf("the call ended as %v, want by SIGTERM", c.cmd.ProcessState)
	}
}

func TestSignalsArePassedToTheCommand(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Run, "app")
	c.start(settings)
	s := f.accept(runRequest)
	for _, sig := range []unix.Signal{unix.SIGWINCH, unix.SIGTERM} { // just before the command runs
		if err := unix.Kill(c.cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	s.reply(started)
	early := []string{s.receive(), s.receive()}
	slices.Sort(early)
	if want := []string{`{"signal":15}`, `{"signal":28}`}; !slices.Equal(early, want) {
		t.Errorf("the caller sent %q, want %q", early, want)
	}
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2} {
		if err := unix.Kill(c.cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		s.expect(fmt.Sprintf(`{"signal":%d}`, sig))
	}
	s.exit(`{"kind":"exit","code":143}`)
	wantEnd(t, c, 143, "C", "", "")
}

// nohup(1) ignores SIGHUP.
func TestAnIgnoredHangupIsNotPassedToTheCommand(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Run, "app")
	c.cmd.Args[4] = "trap '' HUP; " + c.cmd.Args[4]
	c.start(settings)
	s := f.accept(runRequest)
	s.reply(started)
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT} {
		if err := unix.Kill(c.cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	s.expect(`{"signal":2}`)
	s.exit(`{"kind":"exit","code":130}`)
	wantEnd(t, c, 130, "C", "", "")
}

func TestASignalEndsACallWhoseCommandDoesNotStart(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Run, "app")
	c.start(settings)
	f.accept(runRequest)
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGTERM} {
		if err := unix.Kill(c.cmd.Process.Pid, sig); err != nil {
			t.Fatal(err)
		}
		surroundings.Eventually(t, "the call has the signal", func() bool { return !c.isPending(unix.SIGTERM) })
	}
	wantEnd(t, c, 143, "Go", "", "run: ended by signal \"terminated\" before the command ran\n")
}

// isPending reports whether a signal waits for the call to take it.
func (c *caller) isPending(sig unix.Signal) bool {
	c.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		c.t.Fatal(err)
	}
	_, set, _ := strings.Cut(string(text), "\nShdPnd:\t")
	pending, err := strconv.ParseUint(set[:16], 16, 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return pending&(1<<(sig-1)) != 0
}

// Go words the errors of a call that C has begun, after the output.
func TestGoEndsACallWithAnError(t *testing.T) {
	const failed = `{"kind":"error","code":126,"message":"\u003cno\u003e"}`
	tests := map[string]struct {
		replies        []string
		stdout, stderr string
		code           int
	}{
		"instead of a start": {[]string{failed}, "", "run: <no>\n", 126},
		"instead of an exit": {[]string{started, failed}, "out", "run: <no>\n", 126},
		"no supervisor":      {nil, "", "run: the pod's supervisor has gone\n", 125},
		"after an exit":      {[]string{started, `{"kind":"exit"}`, failed}, "out", "run: <no>\n", 126},
		"gone after a start": {[]string{started}, "out", "run: the pod's supervisor has gone\n", 125},
		"another reply":      {[]string{`{"kind":"streams"}`}, "", "run: the supervisor sent \"streams\", want [\"exit\"]\n", 125},
		"an unknown exit":    {[]string{started, `{"kind":"exit","code":7,"new":1}`}, "out", "", 7},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := f.call(names.Run, "app")
			c.start(settings)
			s := f.accept(runRequest)
			fmt.Fprint(s.files[2], test.stdout)
			s.close()
			for _, reply := range test.replies {
				s.reply(reply)
			}
			s.conn.Close()
			wantEnd(t, c, test.code, "Go", test.stdout, test.stderr)
		})
	}
}

// Go makes the call, and nothing of it is lost.
func TestACallThatIsNotPlainIsGos(t *testing.T) {
	file := func(c *caller) *os.File {
		f, err := os.Create(filepath.Join(c.t.TempDir(), "out"))
		if err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { f.Close() })
		return f
	}
	tests := map[string]struct {
		settings string
		change   func(c *caller)
		app      string
	}{
		"other stdin": {settings, func(c *caller) { c.cmd.Stdin = strings.NewReader("") }, "app"},
		"stdout file": {settings, func(c *caller) { c.cmd.Stdout = file(c) }, "app"},
		"stderr file": {settings, func(c *caller) { c.cmd.Stderr = file(c) }, "app"},
		"an escape":   {`{"exec":["/bin/true"],"user":"0","group":"0","\u0074ty":false}`, func(*caller) {}, "app"},
		"no terminal": {`{"exec":["/bin/true"],"user":"0","group":"0","tTy":false}`, func(*caller) {}, "app"},
		"large":       {`{"exec":["` + strings.Repeat("x", 100<<10) + `"],"user":"0","group":"0"}`, func(*caller) {}, "app"},
		"odd name":    {settings, func(*caller) {}, "A_pp"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := f.call(names.Run, test.app)
			test.change(c)
			c.start(test.settings)
			s := f.accept(fmt.Sprintf(`{"version":4,"call":"run","app":%q}`, test.app))
			if got := s.settings(); got != test.settings {
				t.Errorf("settings %.99q, want %.99q", got, test.settings)
			}
			s.reply(started)
			s.close()
			s.exit(`{"kind":"exit","code":3}`)
			wantEnd(t, c, 3, "Go", "", "")
		})
	}
}

// A daemon that writes its settings late has Go wait for them.
func TestLateSettingsAreGos(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Run, "app")
	settingsOf := c.settings
	_, c.settings = c.pipe()
	c.start("")
	late := time.AfterFunc(time.Second/2, func() {
		fmt.Fprint(settingsOf, settings)
		settingsOf.Close()
	})
	defer late.Stop()
	s := f.accept(runRequest)
	if got := s.settings(); got != settings {
		t.Errorf("settings %q, want %q", got, settings)
	}
	s.reply(started)
	s.close()
	s.exit(`{"kind":"exit"}`)
	wantEnd(t, c, 0, "Go", "", "")
}

func TestOtherArgumentsAreGos(t *testing.T) {
	f := newFake(t)
	for _, args := range [][]string{{names.Run}, {names.Run, "app", "b"}, {names.Run, ""}, {names.Status, "--x"}, {names.Status, ""}} {
		c := f.call(args[0], args[1:]...)
		c.start(settings)
		if code, by := c.end(); code == 0 || by != "Go" || c.stderr.Len() == 0 || f.isCalled() {
			t.Errorf("%q: exit %d by %s, stderr %q, called: %t, want an error of Go", args, code, by, c.stderr, f.isCalled())
		}
	}
}

// isCalled reports whether a caller has connected that was not accepted.
func (f *fake) isCalled() (called bool) {
	f.t.Helper()
	raw, err := f.listener.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			called = n > 0
		})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return called
}

// A daemon may leave out the descriptors that status does not need.
func TestStatusNeedsNoDescriptors(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Status)
	c.cmd.Args[4] += " <&- >&-"
	c.start("")
	f.accept(statusRequest).reply(`{"kind":"document"}`, document(t, "{}\n", allSeals)...)
	wantEnd(t, c, 0, "Go", "", "")
}

// A large pipe holds more settings than C reads.
func TestManySettingsInOnePipeAreGos(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Run, "app")
	if _, err := unix.FcntlInt(c.settings.Fd(), unix.F_SETPIPE_SZ, 1<<20); err != nil {
		t.Fatal(err)
	}
	large := `{"exec":["` + strings.Repeat("x", 700<<10) + `"],"user":"0","group":"0"}`
	fmt.Fprint(c.settings, large)
	c.settings.Close()
	_, c.settings = c.pipe()
	c.start("")
	s := f.accept(runRequest)
	if got := s.settings(); got != large {
		t.Errorf("settings of %d bytes, want %d", len(got), len(large))
	}
	s.reply(started)
	s.close()
	s.exit(`{"kind":"exit"}`)
	wantEnd(t, c, 0, "Go", "", "")
}

// document returns a memfd with text, sealed or not, as a control message.
func document(t *testing.T, text string, seals int) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate("document", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "document")
	t.Cleanup(func() { f.Close() })
	fmt.Fprint(f, text)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return unix.UnixRights(fd)
}

const allSeals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// The kernel translates a number that the supervisor names. This process is in no other PID namespace than its caller.
func TestThePlainStatusIsPrintedInC(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Status)
	c.start("")
	s := f.accept(statusRequest)
	for _, pid := range []int{os.Getpid(), c.cmd.Process.Pid} {
		s.reply(`{"kind":"process"}`, unix.UnixCredentials(&unix.Ucred{Pid: int32(pid)})...)
		s.expect(fmt.Sprintf(`{"process":%d}`, pid))
	}
	text := strings.Repeat("status\n", 100_000)
	s.reply(`{"kind":"document"}`, document(t, text, allSeals)...)
	wantEnd(t, c, 0, "C", text, "")
}

// Go asks again, and has the last word.
func TestAStatusThatFailsIsGos(t *testing.T) {
	onDisk, err := os.Open("plain.go")
	if err != nil {
		t.Fatal(err)
	}
	defer onDisk.Close()
	tests := map[string]struct {
		reply   string
		control []byte
	}{
		"an error":         {`{"kind":"error","message":"x"}`, nil},
		"no document":      {`{"kind":"document"}`, nil},
		"a changeable one": {`{"kind":"document"}`, document(t, "{}", unix.F_SEAL_SEAL)},
		"a file on disk":   {`{"kind":"document"}`, unix.UnixRights(int(onDisk.Fd()))},
		"no reply":         {"", nil},
		"nothing in time":  {"late", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			c := f.call(names.Status)
			c.start("")
			s := f.accept(statusRequest)
			switch test.reply {
			case "":
				s.conn.Close()
			case "late":
			default:
				s.reply(test.reply, test.control...)
			}
			f.accept(statusRequest).reply(`{"kind":"document"}`, document(t, "{}\n", allSeals)...)
			wantEnd(t, c, 0, "Go", "{}\n", "")
		})
	}
}

func TestAStatusThatCannotBeWrittenFails(t *testing.T) {
	f := newFake(t)
	c := f.call(names.Status)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	c.cmd.Stdout = full
	c.start("")
	for range 2 { // C, and Go for the error's sake
		f.accept(statusRequest).reply(`{"kind":"document"}`, document(t, "{}\n", allSeals)...)
	}
	wantEnd(t, c, 1, "Go", "", "status: write /dev/stdout: no space left on device\n")
}
