// Command crun is a stager whose apps are started by crun, an OCI runtime in C. All but the
// runtime is the reference stager's: package boot takes the pod through its life, package pid1
// starts its supervisor. The program links neither cgo nor libcontainer.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"kurma.io/stager/boot"
	"kurma.io/stager/callins"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/waiter/pid1"
)

func main() {
	enterCgroup() // this program is also what executes crun
	code, err := dispatch(context.Background())
	os.Exit(max(code, callins.ExitCode(err, os.Stderr)))
}

// dispatch finds the program's part: a call-in by its name, the supervisor by its line to the
// first process, or that first process.
func dispatch(ctx context.Context) (int, error) {
	if callIn, ok := callins.CallIns()[filepath.Base(os.Args[0])]; ok {
		return 0, callIn(ctx, callins.ProcessStreams(), os.Args[1:])
	}
	line, err := pid1.TakeLine()
	if err != nil {
		return 1, err
	}
	runtime := newRuntime(names.AppsCgroup)
	if line == nil {
		pod, err := boot.Decide(runtime, unionfs.Drivers())
		if err != nil {
			return 1, fmt.Errorf("%s: %w", names.Program, err)
		}
		return pid1.Wait(pod.Namespaces.CloneFlags())
	}
	return supervise(ctx, line, runtime)
}

// supervise is the pod's PID 1. It returns when the pod is over.
func supervise(ctx context.Context, line *pid1.Line, runtime spec.Runtime) (int, error) {
	inherited := boot.TakeDescriptors(os.Environ())
	messages := supervisor.NewMessages(os.Stderr)
	defer messages.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	release := supervisor.IgnoreSignals()
	defer release()
	go line.Watch(stop, func() { _ = runtime.KillPod() })
	code, err := boot.Run(ctx, boot.Parts{
		Log: slog.New(slog.NewTextHandler(messages, nil)), LimitLog: messages.Limit, Runtime: runtime, Drivers: unionfs.Drivers(),
		Waiter: line, Inherited: inherited,
	}, boot.Steps())
	if err != nil {
		return max(code, 1), fmt.Errorf("%s: %w", names.Program, err)
	}
	return code, nil
}
