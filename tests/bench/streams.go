package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// streamBytes is how much each sample carries.
const streamBytes = 2 << 30

// A starter starts a program with stdin, stdout and stderr, which it leaves to the caller.
type starter func(streams ...*os.File) (*os.Process, error)

// streams measures how much the stager's pipes carry between a caller of run or attach and a program in the pod, and
// one pipe between the same program and the same caller, without a stager. What an app writes is also logged, as for
// the logs, so attach has its input only.
func (b *benchmark) streams() (err error) {
	p, err := b.daemon.start(1, directConfig, "/bin/pause")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	n := max(b.runs/4, 1)
	t := newTable(fmt.Sprintf("%d GiB to or from a program, medians of %d, MB/s", streamBytes>>30, n),
		"way", "stager", "one pipe", "stager/one pipe")
	for _, row := range []struct {
		way, mode string
		stager    func() (time.Duration, error)
	}{
		{"stdout of run", "out", func() (time.Duration, error) { return carry("out", p.running("out")) }},
		{"stdin of run", "in", func() (time.Duration, error) { return carry("in", p.running("in")) }},
		{"stdin of attach", "in", b.attached},
	} {
		samples, err := collect(n, []func() (time.Duration, error){
			row.stager, func() (time.Duration, error) { return carry(row.mode, b.plain(row.mode)) },
		})
		if err != nil {
			return err
		}
		ours, plain := streamBytes/1e6/median(samples[0]).Seconds(), streamBytes/1e6/median(samples[1]).Seconds()
		t.row(row.way, ours, plain, ratio(ours, plain))
	}
	return t.end()
}

// plain starts the program that the layers have outside of any container.
func (b *benchmark) plain(mode string) starter {
	program := filepath.Join(b.host.layers[layerCount-1], "bin/stream")
	return func(streams ...*os.File) (*os.Process, error) {
		return os.StartProcess(program, []string{"stream", mode, strconv.Itoa(streamBytes)}, &os.ProcAttr{Files: streams})
	}
}

// running starts the program in the pod's app, by run.
func (p *pod) running(mode string) starter {
	settings := fmt.Sprintf(`{"exec": ["/bin/stream", %q, "%d"], "user": "0", "group": "0"}`, mode, streamBytes)
	return func(streams ...*os.File) (*os.Process, error) {
		return p.startCallIn(settings, []string{names.CallInDir + "/" + names.Run, "app0"}, streams...)
	}
}

// attached measures what attach carries to an app, which ends when it has read all.
func (b *benchmark) attached() (took time.Duration, err error) {
	d := daemon{host: b.host, image: b.daemon.image, stdin: true}
	p, err := d.start(1, directConfig, "/bin/stream", "in", strconv.Itoa(streamBytes))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	return carry("in", func(streams ...*os.File) (*os.Process, error) {
		return p.startCallIn("", []string{names.CallInDir + "/" + names.Attach, "app0"}, streams...)
	})
}

// carry starts a program with a pipe and the null device, and returns how long streamBytes took through the pipe.
func carry(mode string, start starter) (time.Duration, error) {
	read, write, err := os.Pipe()
	null, nullErr := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err := errors.Join(err, nullErr); err != nil {
		return 0, err
	}
	defer null.Close()
	streams, ours, theirs := []*os.File{read, null, null}, write, read
	if mode == "out" {
		streams, ours, theirs = []*os.File{null, write, null}, read, write
	}
	defer ours.Close()
	begin := time.Now()
	process, err := start(streams...)
	theirs.Close()
	if err != nil {
		return 0, err
	}
	moveErr := moveAll(ours, mode)
	state, err := process.Wait()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	return time.Since(begin), errors.Join(moveErr, err)
}

// moveAll reads or writes streamBytes in blocks, with blocking system calls.
func moveAll(f *os.File, mode string) error {
	move, block := unix.Write, make([]byte, 64<<10)
	if mode == "out" {
		move = unix.Read
	}
	fd := int(f.Fd()) // it blocks from now on
	for left := streamBytes; left > 0; {
		n, err := move(fd, block)
		if n <= 0 {
			return fmt.Errorf("carry %s: %d bytes are missing: %w", mode, left, err)
		}
		left -= n
	}
	return nil
}
