package supervisor_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/spec"
	. "kurma.io/stager/supervisor"
	"kurma.io/stager/tests/surroundings"
)

func attach(t *testing.T, pod *running) *Attachment {
	t.Helper()
	a, err := pod.Attach("app")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// gated is an app that waits for the pipe's end and then runs script.
func gated(t *testing.T, b *fakes, script string) (app App, open func()) {
	t.Helper()
	gate, hold, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = gate.Close() })
	return App{Stdin: gate, Main: b.sh("read gate; " + script)}, func() { _ = hold.Close() }
}

func readAll(t *testing.T, f *os.File) string {
	t.Helper()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestSeveralAttachmentsSeeAllOutput(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "echo out; echo err >&2; printf last; exit 4")
	pod := podOf(t, app)
	all := []*Attachment{attach(t, pod), attach(t, pod), attach(t, pod)}
	if all[0].Stdin != nil || all[0].Terminal {
		t.Error("an app without open stdin got one")
	}
	if err := all[2].Close(); err != nil {
		t.Error(err)
	}
	<-all[2].Done()
	if err := all[2].Err(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	open()
	for _, a := range all[:2] {
		<-a.Done()
		// The last byte came before.
		if out, errs := readAll(t, a.Stdout), readAll(t, a.Stderr); out != "out\nlast" || errs != "err\n" {
			t.Errorf("%q, %q", out, errs)
		}
		if a.Err() != nil || a.Exit() != (Exit{Code: 4}) {
			t.Errorf("%v, %+v", a.Err(), a.Exit())
		}
	}
}

// The app waits for its reader after each burst, which is smaller than what the backlogs keep, so that
// a busy machine makes no difference.
func TestAnAttachmentThatDoesNotReadIsDropped(t *testing.T) {
	const bursts, size = 2, 25_000_000
	b := newFakes(t)
	var logged counter
	pod := podOf(t, App{
		OpenStdin: true, Stdout: &logged,
		Main: b.sh(fmt.Sprintf("for i in $(seq %d); do read go; head -c %d /dev/zero; done; exit 2", bursts, size)),
	})
	stuck, reader := attach(t, pod), attach(t, pod)
	for range bursts {
		if _, err := io.WriteString(reader.Stdin, "go\n"); err != nil {
			t.Fatal(err)
		}
		if n, err := io.CopyN(io.Discard, reader.Stdout, size); err != nil {
			t.Fatalf("the other got %d bytes, %v", n, err)
		}
	}
	<-stuck.Done()
	if !errors.Is(stuck.Err(), ErrDropped) {
		t.Errorf("%v", stuck.Err())
	}
	<-reader.Done()
	if rest := readAll(t, reader.Stdout); rest != "" || reader.Err() != nil || reader.Exit() != (Exit{Code: 2}) {
		t.Errorf("the other got %d bytes more, %v, %+v", len(rest), reader.Err(), reader.Exit())
	}
	if _, err := pod.stopped(); err != nil || logged.bytes != bursts*size {
		t.Errorf("the log got %d bytes, %v", logged.bytes, err)
	}
}

// Neither the app nor its log waits for attachments that do not read, however many there are:
// all are still attached, and none has been dropped, when everything is written. The output
// that they have not read is kept once.
func TestTheAppWaitsForNoAttachment(t *testing.T) {
	const size, readers = 40_000_000, 32
	b := newFakes(t)
	out := newLog()
	var logged counter
	app, open := gated(t, b, fmt.Sprintf("head -c %d /dev/zero; echo written >&2; exec sleep 1000", size))
	app.Stdout, app.Stderr = &logged, out
	pod := podOf(t, app)
	var all []*Attachment
	for range readers {
		all = append(all, attach(t, pod))
	}
	open()
	out.await("written")
	for _, a := range all {
		select {
		case <-a.Done():
			t.Errorf("dropped before the app had written all: %v", a.Err())
		default:
		}
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	const limit = 80 << 20 // twice what package output keeps for the slowest
	if memory.HeapAlloc > limit {
		t.Errorf("%d MB are kept", memory.HeapAlloc>>20)
	}
	// The burst does not drop an attachment that reads later.
	if n, err := io.CopyN(io.Discard, all[0].Stdout, size); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if _, err := pod.stopped(); err != nil || logged.bytes != size {
		t.Errorf("the log got %d bytes, %v", logged.bytes, err)
	}
}

func TestAReaderThatGoesAwayIsDetached(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "echo one; exec sleep 1000")
	pod := podOf(t, app)
	a := attach(t, pod)
	if err := errors.Join(a.Stdout.Close(), a.Stderr.Close()); err != nil {
		t.Fatal(err)
	}
	open()
	<-a.Done()
	if !errors.Is(a.Err(), os.ErrClosed) || pod.Status()[0].State != StateRunning {
		t.Errorf("%v, app %s", a.Err(), pod.Status()[0].State)
	}
}

func TestStdinSurvivesItsWriters(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := podOf(t, App{OpenStdin: true, Stdout: out, Main: b.sh("while read line; do echo got $line; done")})
	for _, word := range []string{"one", "two"} {
		a := attach(t, pod)
		if _, err := io.WriteString(a.Stdin, word+"\n"); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	out.await("got one\ngot two\n")
	if got := pod.Status()[0].State; got != StateRunning {
		t.Errorf("app %s", got)
	}
}

func TestWritingToAClosedStdinIsNotAnError(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := podOf(t, App{OpenStdin: true, Stdout: out, Main: b.sh("exec <&-; echo closed; exec sleep 1000")})
	out.await("closed")
	if _, err := io.WriteString(attach(t, pod).Stdin, "x"); err != nil {
		t.Error(err)
	}
}

func TestAnAttachmentUsesTheAppsTerminal(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := podOf(t, App{
		Terminal: true, Stdout: out,
		Main: b.sh("stty -echo; echo ready; read line; stty size; echo got $line; exit 3"),
	})
	out.await("ready")
	a := attach(t, pod)
	if !a.Terminal || a.Stderr != nil {
		t.Errorf("not a terminal: %+v", a)
	}
	if err := a.Resize(120, 40); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(a.Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	text := readAll(t, a.Stdout)
	if !strings.HasSuffix(text, "40 120\r\ngot hello\r\n") || a.Exit() != (Exit{Code: 3}) || a.Err() != nil {
		t.Errorf("%q, %+v, %v", text, a.Exit(), a.Err())
	}
}

func TestATerminalInterruptEndsTheApp(t *testing.T) {
	b := newFakes(t)
	out := newLog()
	pod := podOf(t, App{Terminal: true, Stdout: out, Main: b.sh("echo ready; exec sleep 1000")})
	out.await("ready")
	a := attach(t, pod)
	if _, err := a.Stdin.Write([]byte{3}); err != nil {
		t.Fatal(err)
	}
	<-a.Done()
	if a.Exit() != (Exit{130, "interrupt"}) {
		t.Errorf("%+v", a.Exit())
	}
}

func TestAnAppMayBeAttachedBeforeItsStart(t *testing.T) {
	b := newFakes(t)
	for _, terminal := range []bool{false, true} {
		gate, begun := make(chan struct{}), make(chan struct{})
		pod := start(t, Config{Grace: time.Minute, Apps: []App{{
			Name: "app", Terminal: terminal,
			Main: func() (spec.Container, error) {
				close(begun)
				<-gate
				return b.sh("echo first; stty size; exit 1")()
			},
		}}})
		<-begun
		a := attach(t, pod)
		if err := a.Resize(90, 30); err != nil {
			t.Error(err)
		}
		close(gate)
		line, err := bufio.NewReader(a.Stdout).ReadString('\n')
		if err != nil || strings.TrimSpace(line) != "first" {
			t.Errorf("%q, %v", line, err)
		}
		<-a.Done()
		if a.Err() != nil || a.Exit() != (Exit{Code: 1}) {
			t.Errorf("%v, %+v", a.Err(), a.Exit())
		}
		_, _ = pod.stopped()
	}
}

func TestAttachmentEndsWithItsRun(t *testing.T) {
	b := newFakes(t)
	app, open := gated(t, b, "exit 1")
	app.Name = "app"
	pod := start(t, Config{Restart: spec.RestartPolicy{AfterSuccess: true, AfterFailure: true}, Apps: []App{app}}).up()
	a := attach(t, pod)
	open()
	<-a.Done()
	if a.Err() != nil || a.Exit() != (Exit{Code: 1}) {
		t.Errorf("%v, %+v", a.Err(), a.Exit())
	}
}

func TestAttachmentsMayComeAndGoAllTheTime(t *testing.T) {
	b := newFakes(t)
	for _, terminal := range []bool{false, true} {
		t.Run(fmt.Sprint("terminal ", terminal), func(t *testing.T) {
			before := descriptors(t)
			pod := start(t, Config{Exit: spec.ExitPolicy{WhenAllEnded: true}, Apps: []App{{
				Name: "app", Terminal: terminal, OpenStdin: true,
				Main: b.sh("i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done"),
			}}}).up()
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					for {
						a, err := pod.Attach("app")
						if err != nil {
							if !errors.Is(err, ErrNotRunning) {
								t.Error(err)
							}
							return
						}
						_, _ = bufio.NewReader(a.Stdout).ReadString('\n')
						_ = a.Resize(80, 25)
						if err := a.Close(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			callers.Wait()
			if _, err := pod.wait(); err != nil {
				t.Error(err)
			}
			// A descriptor in use by a read is closed after it.
			surroundings.Eventually(t, "the descriptors that were open before", func() bool { return descriptors(t) <= before })
		})
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
