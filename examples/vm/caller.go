package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/callins"
	"kurma.io/stager/examples/vm/line"
	"kurma.io/stager/names"
)

const (
	// startLimit bounds the wait for the guest to start a call-in.
	startLimit = 30 * time.Second

	// settingsDescriptor is where a daemon passes run's settings.
	settingsDescriptor = 3

	exitFailed = 125 // of run and attach, which could not be done
)

// relay returns the call-in NAME, which calls NAME in the guest with this process's descriptors: what it
// writes, its terminal, and its exit status are those of the call-in there. If the
// stager does not listen, logs reads the files, which are outside.
func relay(name string) callins.CallIn {
	return func(ctx context.Context, streams callins.Streams, args []string) error {
		return callGuest(ctx, streams, name, args)
	}
}

func callGuest(ctx context.Context, streams callins.Streams, name string, args []string) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: names.ControlSocket, Net: "unix"})
	if err != nil && name == names.Logs {
		return callins.LogsFrom(names.LogDir)(ctx, streams, args)
	}
	code := exitFailed
	if err != nil {
		err = errors.New("the pod is not up: the stager does not listen")
	} else {
		code, err = relayCall(conn, name, args)
	}
	if err != nil {
		if name == names.Status || name == names.Logs {
			code = 1
		}
		err = fmt.Errorf("%s: %w", name, err)
	}
	if code == 0 && err == nil {
		return nil
	}
	return &callins.ExitError{Code: code, Err: err}
}

func relayCall(conn *net.UnixConn, name string, args []string) (int, error) {
	stager, err := peer(conn)
	if err != nil {
		return exitFailed, err
	}
	l := line.New(conn, line.EndA, nil)
	go func() { _ = l.Serve() }() // its end ends the channel
	terminal := callerTerminal()
	signals := make(chan os.Signal, 16)
	catch(signals, name)
	req := requestOf(name, args, terminal)
	ch, err := l.Open(encode(req))
	if err != nil {
		return exitFailed, err
	}
	if started, err := awaitStart(ch); err != nil {
		return exitFailed, err
	} else if !started {
		return ending(ch)
	}
	restore, err := terminal.raw()
	if err != nil {
		return exitFailed, err
	}
	defer restore()
	go forwardSignals(ch, signals, terminal)
	go copyIn(ch, 0, os.Stdin)
	if req.Settings {
		go copyIn(ch, settingsDescriptor, os.NewFile(settingsDescriptor, "settings"))
	}
	return carry(ch, name == names.Status, stager)
}

// peer returns the number, in this process's PID namespace, of the process that listens.
func peer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	inner := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid, errors.Join(inner, err)
}

func requestOf(name string, args []string, t *callerTTY) request {
	req := request{Use: useCall, Args: append([]string{name}, args...), Terminal: t.which, Term: os.Getenv("TERM")}
	req.Width, req.Height = t.size()
	flags, err := unix.FcntlInt(settingsDescriptor, unix.F_GETFD, 0)
	// One that is closed on exec was not passed: Go's runtime may have opened it.
	req.Settings = name == names.Run && err == nil && flags&unix.FD_CLOEXEC == 0
	return req
}

// catch takes the signals that the call-in is to have. Those that are ignored stay so.
func catch(signals chan<- os.Signal, name string) {
	list := []os.Signal{unix.SIGWINCH}
	if name == names.Run || name == names.Attach {
		list = append(list, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	}
	for _, sig := range list {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
}

// awaitStart waits until the call-in runs. It returns false if it has ended instead,
// or has not started in time, which is an error.
func awaitStart(ch *line.Channel) (started bool, err error) {
	late := time.NewTimer(startLimit)
	defer late.Stop()
	select {
	case text, ok := <-ch.Notes():
		var n note
		if ok && json.Unmarshal(text, &n) == nil && n.State == stateStarted {
			return true, nil
		}
		<-ch.Done()
		return false, nil
	case <-late.C:
		return false, fmt.Errorf("the virtual machine does not answer within %v", startLimit)
	}
}

// forwardSignals sends signals, and sizes of the terminal, to the call-in.
func forwardSignals(ch *line.Channel, signals <-chan os.Signal, t *callerTTY) {
	for sig := range signals {
		n := note{Signal: int(sig.(unix.Signal))}
		if sig == unix.SIGWINCH {
			n = note{}
			n.Width, n.Height = t.size()
		}
		_ = ch.Note(encode(n)) // a call-in that has ended wants none
	}
}

// carry copies the call-in's output until it has ended. The output of status
// is held back to the end, for withPID.
func carry(ch *line.Channel, status bool, stager int) (int, error) {
	var document bytes.Buffer
	stdout := io.Writer(os.Stdout)
	if status {
		stdout = &document
	}
	var outputs sync.WaitGroup
	errs := make(chan error, 2)
	for stream, to := range map[int]io.Writer{1: stdout, 2: os.Stderr} {
		outputs.Go(func() {
			if _, err := io.Copy(to, ch.Reader(stream)); err != nil {
				errs <- fmt.Errorf("write output: %w", err)
				_ = ch.Close(nil) // the call-in ends with its caller
			}
		})
	}
	<-ch.Done()
	outputs.Wait()
	select {
	case err := <-errs:
		return exitFailed, err
	default:
	}
	code, err := ending(ch)
	if status && err == nil {
		_, err = os.Stdout.Write(withPID(document.Bytes(), stager))
	}
	return code, err
}

func copyIn(ch *line.Channel, stream int, from io.Reader) {
	writer := ch.Writer(stream)
	_, _ = io.Copy(writer, from) // a command that reads no more, or a caller that has no such input
	_ = writer.Close()
}

// ending is how a call-in on a channel that is over ended.
func ending(ch *line.Channel) (int, error) {
	text, err := ch.Result()
	if err != nil {
		return exitFailed, errors.New("the stager has ended")
	}
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return exitFailed, fmt.Errorf("decode the stager's answer: %w", err)
	}
	if r.Error != "" {
		return r.Code, errors.New(r.Error)
	}
	return r.Code, nil
}

// withPID puts the stager's number in place of each app's in the document of
// status. An app's own number is valid in the guest only; on this machine, the app
// lives and dies with the stager.
func withPID(document []byte, stager int) []byte {
	// No other key or string of the document can hold this: a quote in a string is escaped.
	return regexp.MustCompile(`"pid":(\s*)[0-9]+`).ReplaceAll(document, []byte(`"pid":${1}`+strconv.Itoa(stager)))
}
