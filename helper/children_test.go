package helper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/tests/surroundings"
)

// children returns a starter and its log, which may be read when all helpers have ended.
func children() (Starter, *bytes.Buffer) {
	var log bytes.Buffer
	return &Children{Log: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

func shell(name, script string) Command {
	return Command{Name: name, Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

// end waits for a helper, with a limit.
func end(t *testing.T, p *Process) error {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the helper does not end")
	}
	return p.Wait()
}

func TestEndLeavesNoHelper(t *testing.T) {
	surroundings.Root(t)
	starter, _ := children()
	var all []*Process
	for name, script := range map[string]string{"ended": "true", "ignores signals": "trap '' TERM INT HUP; sleep 1000 & sleep 1000; true"} {
		p, err := starter.Start(t.Context(), shell(name, script))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	starter.(*Children).End(20 * time.Second)
	for _, p := range all {
		select {
		case <-p.Done():
		default:
			t.Error("a helper runs")
		}
	}
}

func TestAHelpersEndIsReported(t *testing.T) {
	surroundings.Root(t)
	for name, test := range map[string]struct {
		script string
		code   int
	}{
		"success":           {"exit 0", 0},
		"failure":           {"exit 7", 7},
		"leaves a child":    {"sleep 1000 & exit 3", 3},
		"closes its output": {"exec >/dev/null 2>&1; exit 4", 4},
	} {
		t.Run(name, func(t *testing.T) {
			starter, _ := children()
			p, err := starter.Start(t.Context(), shell(name, test.script))
			if err != nil {
				t.Fatal(err)
			}
			var exit *ExitError
			switch err := end(t, p); {
			case err == nil && test.code == 0:
			case !errors.As(err, &exit) || exit.Code != test.code || exit.Name != name:
				t.Errorf("error %v, want exit code %d", err, test.code)
			}
		})
	}
}

func TestKillEndsAStubbornHelper(t *testing.T) {
	surroundings.Root(t)
	starter, _ := children()
	p, err := starter.Start(t.Context(), shell("stubborn", "trap '' TERM INT HUP; sleep 1000 & wait; sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.Kill()
	var exit *ExitError
	if err := end(t, p); !errors.As(err, &exit) || exit.Code != 137 {
		t.Error(err)
	}
	p.Kill()
}

func TestCommandsThatCannotStartAreReported(t *testing.T) {
	surroundings.Root(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		cmd  Command
		is   error
		want string
	}{
		"missing":        {t.Context(), Command{Name: "x", Args: []string{"/no/such"}}, syscall.ENOENT, `start helper "x": exec /no/such: no such file or directory`},
		"not executable": {t.Context(), Command{Name: "x", Args: []string{"/etc/passwd"}}, syscall.EACCES, `start helper "x": exec /etc/passwd: permission denied`},
		"relative":       {t.Context(), Command{Name: "x", Args: []string{"sh"}}, nil, `start helper "x": the program needs an absolute path`},
		"no program":     {t.Context(), Command{Name: "x"}, nil, `start helper "x": the program needs an absolute path`},
		"no name":        {t.Context(), Command{Args: []string{"/bin/true"}}, nil, "start helper: no name"},
		"NUL":            {t.Context(), Command{Name: "x", Args: []string{"/bin/true", "a\x00b"}}, nil, `start helper "x": "a\x00b" contains a NUL byte`},
		"NUL in env":     {t.Context(), Command{Name: "x", Args: []string{"/bin/true"}, Env: []string{"a\x00b"}}, nil, `start helper "x": "a\x00b" contains a NUL byte`},
		"too many files": {t.Context(), Command{Name: "x", Args: []string{"/bin/true"}, Files: make([]*os.File, 33)}, nil, `start helper "x": 33 files are more than 32`},
		"nil file":       {t.Context(), Command{Name: "x", Args: []string{"/bin/true"}, Files: make([]*os.File, 1)}, nil, `start helper "x": file 0 is nil`},
		"too late":       {ended, Command{Name: "x", Args: []string{"/bin/true"}}, context.Canceled, `start helper "x": context canceled`},
	} {
		t.Run(name, func(t *testing.T) {
			starter, _ := children()
			_, err := starter.Start(test.ctx, test.cmd)
			if err == nil || err.Error() != test.want || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v, want %s", err, test.want)
			}
		})
	}
}

// The helper has its files and its environment and nothing else of the caller's.
func TestAHelperHasItsOwnFilesAndEnvironment(t *testing.T) {
	surroundings.Root(t)
	starter, log := children()
	f, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := shell("files", `pwd; read -r name <&3 && echo "$name" | wc -w; env | grep -v -e ^PWD -e ^_ -e ^SHLVL`)
	cmd.Files = []*os.File{f}
	p, err := starter.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := end(t, p); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"line=/\n", "line=1\n", "line=\"PATH=/usr/bin:/bin\"\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in\n%s", want, log)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// The kernel kills a helper when its parent, a thread, ends. A thread that shares the program's files may not end: an app
// can hold up the close of a pipe. Neither the thread nor its descriptors stay.
func TestAHelpersParentHasNoFiles(t *testing.T) {
	surroundings.Root(t)
	starter, _ := children()
	surroundings.Eventually(t, "the threads of earlier helpers have ended", func() bool { return threadsWithoutPipes(t) == 0 })
	p, err := starter.Start(t.Context(), shell("waits", "sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if n := threadsWithoutPipes(t); n != 1 {
		t.Errorf("%d threads have no pipe open, want the helper's parent alone", n)
	}
	p.Kill()
	_ = end(t, p) // killed
	surroundings.Eventually(t, "the thread has ended", func() bool { return threadsWithoutPipes(t) == 0 })
}

// threadsWithoutPipes returns how many of this program's threads have a table of descriptors without a pipe.
func threadsWithoutPipes(t *testing.T) (n int) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		dir := "/proc/self/task/" + thread.Name() + "/fd"
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended
		}
		pipes := slices.ContainsFunc(files, func(file os.DirEntry) bool {
			target, _ := os.Readlink(dir + "/" + file.Name()) // nothing of a file that is closed by now
			return strings.HasPrefix(target, "pipe:")
		})
		if !pipes && len(files) > 0 {
			n++
		}
	}
	return n
}

func TestTenHelpersRunAtOnce(t *testing.T) {
	surroundings.Root(t)
	starter, _ := children()
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			p, err := starter.Start(t.Context(), shell(fmt.Sprint(i), fmt.Sprint("exit ", 10+i)))
			if err != nil {
				t.Error(err)
				return
			}
			var exit *ExitError
			if err := p.Wait(); !errors.As(err, &exit) || exit.Code != 10+i {
				t.Errorf("helper %d: %v", i, err)
			}
		})
	}
	all.Wait()
}
