package callins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/supervisor/supervisortest"
	"kurma.io/stager/tests/hostile"
	"kurma.io/stager/tests/surroundings"
)

// The test program is also the pod, PID 1 of its own PID namespace with real
// processes, and the callers: roleVariable says which.
const (
	roleVariable   = "CALLINS_TEST_ROLE"
	socketVariable = "CALLINS_TEST_SOCKET"
	podVariable    = "CALLINS_TEST_POD"
	cgroupVariable = "CALLINS_TEST_CGROUP"
)

func TestMain(m *testing.M) {
	ctx := context.Background()
	s := Streams{
		Socket: os.Getenv(socketVariable),
		Stdin:  os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Settings: settingsDescriptor,
	}
	switch role := os.Getenv(roleVariable); role {
	case "":
		surroundings.SettleAsRoot()
		os.Exit(m.Run())
	case "pod":
		if err := servePod(ctx, s.Socket); err != nil {
			fmt.Fprintln(os.Stderr, "pod:", err)
			os.Exit(1)
		}
	case "holder":
		fmt.Fprintln(os.Stderr, hold(os.Args[1]))
	case "tracer":
		trace(os.Args[1])
	default:
		end(callIns()[role](ctx, s, os.Args[1:]))
	}
}

// hold locks one of the process's pipes for good.
func hold(stream string) error {
	fd, err := strconv.Atoi(stream)
	if err != nil {
		return err
	}
	return hostile.Hold(fd)
}

// trace traces a process for good, so that its parent cannot collect it when it is killed (ptrace(2)).
func trace(process string) {
	runtime.LockOSThread()
	pid, err := strconv.Atoi(process)
	if err == nil {
		err = unix.PtraceSeize(pid)
	}
	fmt.Fprintln(os.Stdout, "traced:", err)
	select {}
}

// end is what the stager's main does with a call-in's error.
func end(err error) {
	var exit *ExitError
	if !errors.As(err, &exit) {
		os.Exit(0)
	}
	if exit.Err != nil {
		fmt.Fprintln(os.Stderr, exit.Err)
	}
	os.Exit(exit.Code)
}

// testApp describes one app of a test's pod.
type testApp struct {
	Name, Before        string
	Args                []string
	Terminal, OpenStdin bool
}

// servePod runs a pod until SIGTERM or the end of its stdin. It writes a byte to
// stdout once the socket listens, another once the pod is ready.
func servePod(ctx context.Context, socket string) error {
	if err := ownProc(); err != nil {
		return err
	}
	// What a shell left open is not the apps'.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(ctx, unix.SIGTERM)
	defer cancel()
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(3)
	}()
	var apps []testApp
	if err := json.Unmarshal([]byte(os.Getenv(podVariable)), &apps); err != nil {
		return err
	}
	runtime := supervisortest.NewRuntime(os.Getenv(cgroupVariable))
	if err := errors.Join(runtime.Prepare("/", spec.Resources{}), runtime.MakePod()); err != nil {
		return err
	}
	pod := supervisor.New(supervisor.Config{Apps: definitions(runtime, apps)})
	listener, err := Listen(socket)
	if err != nil {
		return err
	}
	server := &Server{Handlers: handlers(pod, apps), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	os.Stdout.WriteString("l")
	var served sync.WaitGroup
	serving, stop := context.WithCancel(context.Background())
	served.Go(func() { server.Serve(serving, listener) })
	_, err = pod.Run(ctx, func() error { _, err := os.Stdout.WriteString("r"); return err })
	stop() // the callers know how the apps ended
	served.Wait()
	return err
}

// handlers are those of the stager, and of a call-in that a test has added.
func handlers(pod *supervisor.Supervisor, apps []testApp) map[string]Handler {
	env := func(app string) []string {
		return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "AC_APP_NAME=" + app, "AC_METADATA_URL=http://x/", "container=test"}
	}
	isolators := func(app string) (any, bool) {
		return map[string]string{"resource/memory": "enforced"}, app == apps[0].Name
	}
	rows := Handlers(pod, isolators, env)
	rows["uptime"] = ServeDocument(uptimes(pod, time.Now()))
	return rows
}

// callIns are those of the stager, and one that a test has added.
func callIns() map[string]CallIn {
	rows := CallIns()
	rows["uptime"] = PrintDocument("uptime")
	return rows
}

// ownProc shows the pod's processes in /proc, as the stager's supervisor has it.
func ownProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

func definitions(runtime spec.Runtime, apps []testApp) []supervisor.App {
	var all []supervisor.App
	maker := func(name string, args []string) func() (spec.Container, error) {
		return func() (spec.Container, error) {
			return runtime.Container(spec.Spec{
				Name: name, Cgroup: os.Getenv(cgroupVariable) + "/" + name, Process: spec.Process{Args: args, Env: os.Environ()},
			})
		}
	}
	for _, app := range apps {
		definition := supervisor.App{
			Name: app.Name, Terminal: app.Terminal, OpenStdin: app.OpenStdin,
			Stdout: discard{}, Stderr: discard{},
			Main: maker(app.Name, app.Args),
		}
		if app.Before != "" {
			definition.PreStart = maker(app.Name+".pre-start", []string{"/bin/sh", "-c", app.Before})
		}
		all = append(all, definition)
	}
	return all
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
