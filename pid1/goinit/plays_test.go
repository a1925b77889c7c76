package goinit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/supervisor"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/hostile"
)

// attacker is the play of an app.
const attacker = "attacker"

// supervise is the supervisor of a test. It ends the process.
func supervise() {
	play, hosts := strings.CutSuffix(os.Getenv(playVariable), " in the host's PIDs")
	in := inherit()
	ctx, release := supervisor.CatchSignals(context.Background())
	defer release()
	if play == "fail" {
		exit(0, errors.New("the supervisor fails"))
	}
	namespaces := uintptr(unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if hosts {
		namespaces = 0
	}
	init := New()
	err := init.Begin(namespaces, in.Ready)
	if err == nil && in.Ready != nil {
		err = in.Ready.Close()
	}
	if err != nil {
		exit(1, err)
	}
	code, err := plays(ctx, init)[play]()
	exit(code, errors.Join(err, init.Close()))
}

func plays(ctx context.Context, init *Init) map[string]func() (int, error) {
	return map[string]func() (int, error){
		"exit":  func() (int, error) { return 7, init.Up() },
		"leave": func() (int, error) { return 7, leave() },
		"ready": func() (int, error) {
			say("closed")
			await()
			return 0, errors.Join(init.Up(), say("up"))
		},
		"lose init": func() (int, error) {
			close(init.orders)
			say("closed")
			await()
			return 0, nil
		},
		"give up": func() (int, error) { return 0, errors.Join(say("closed"), await()) },
		"stop": func() (int, error) {
			err := errors.Join(init.Up(), say("up"))
			<-ctx.Done()
			return 0, errors.Join(err, say("stop"))
		},
		"app": func() (int, error) {
			_, err := inPod(init, "sleep", "1000")
			return 0, errors.Join(err, init.Up(), say("up", init.PID()), await())
		},
		"app that locks a pipe": func() (int, error) {
			app, err := locked(init)
			err = errors.Join(err, say("up", app))
			<-ctx.Done()
			return 0, err
		},
		"wait for init": func() (int, error) {
			err := errors.Join(init.Up(), say("up", init.PID()))
			<-init.Lost()
			say("lost")
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", init.PID())); err == nil && strings.Contains(string(stat), ") Z ") {
				say("the number is init's")
			}
			return 0, err
		},
		"orphans": func() (int, error) {
			const script = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); (sh -c 'sleep 0.01' &); done; echo orphans are made"
			err := errors.Join(init.Up(), say("up", init.PID()))
			_, started := inPod(init, "sh", "-c", script)
			return 0, errors.Join(err, started, await())
		},
		"state": func() (int, error) { return 0, errors.Join(init.Up(), say("up", init.PID()), await()) },
		"attack": func() (int, error) {
			err := errors.Join(init.Up(), say("up"), os.Setenv(playVariable, attacker))
			ended, started := inPod(init, "/proc/self/exe")
			if started == nil {
				err = errors.Join(err, <-ended)
			}
			select {
			case <-init.Lost():
			default:
				say("init lives")
			}
			return 0, errors.Join(err, started, init.In(func() error { return nil }))
		},
	}
}

// inPod starts a program in the pod's PID namespace, with the supervisor's stdout.
func inPod(init *Init, args ...string) (<-chan error, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return startInPod(init, cmd)
}

// startInPod returns what reports the program's end.
func startInPod(init *Init, cmd *exec.Cmd) (<-chan error, error) {
	ended := make(chan error, 1)
	err := thread.In([]string{init.Namespace("pid")}, cmd.Start)
	if err == nil {
		go func() { ended <- cmd.Wait() }()
	}
	return ended, err
}

// locked starts an app that holds the lock of its stdout's pipe, whose other end the supervisor has. It returns the app's
// number.
func locked(init *Init) (int, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command("cat", "/dev/ptmx") // BusyBox's copies by sendfile(2), and nobody types on the terminal
	cmd.Path, cmd.Args[0] = "/bin/busybox", "cat"
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = write, os.Stderr, []*os.File{os.Stdout}
	_, err = startInPod(init, cmd)
	if err := errors.Join(err, write.Close(), init.Up()); err != nil {
		return 0, err
	}
	for call := fmt.Sprintf("/proc/%d/syscall", cmd.Process.Pid); ; {
		text, err := os.ReadFile(call)
		if err != nil || strings.HasPrefix(string(text), fmt.Sprintf("%d ", unix.SYS_SENDFILE)) {
			const highest = 1000 // which the kernel releases first
			_, duplicated := unix.FcntlInt(read.Fd(), unix.F_DUPFD_CLOEXEC, highest)
			return cmd.Process.Pid, errors.Join(err, duplicated, read.Close())
		}
	}
}

// attack is an app that does to init what it can.
func attack() {
	runtime.LockOSThread() // for the mount namespace
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("proc", "/proc", "proc", 0, ""))
	}
	if err != nil {
		exit(1, err)
	}
	if sent, err := hostile.Signal(1); err != nil || sent == 0 {
		exit(1, fmt.Errorf("%d signals are sent: %w", sent, err))
	}
	say("signals are sent")
	// CAP_SYS_PTRACE leads to its root.
	_, ownErr := os.Stat("/proc/1/root/1/status")
	_, hostErr := os.Stat("/proc/1/root/etc/passwd")
	if ownErr == nil && errors.Is(hostErr, os.ErrNotExist) {
		say("root is its own /proc")
	}
	os.Exit(0)
}

// leave returns nil if this process cannot leave the stager's root, and sees the volume if there is one.
func leave() error {
	if umask := unix.Umask(0o022); umask != 0o022 {
		return fmt.Errorf("umask %o", umask)
	}
	volume, err := daemon.HasVolume()
	if !volume {
		err = daemon.LeaveChroot()
	}
	return err
}

// say writes a line for the test.
func say(words ...any) error { _, err := fmt.Fprintln(os.Stdout, words...); return err }

// await waits for the end of the test's pipe.
func await() error { _, _ = os.Stdin.Read(make([]byte, 1)); return nil }
