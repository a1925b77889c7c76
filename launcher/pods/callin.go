package pods

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
)

// settingsPatience is how long `run` may take to read its settings to the end.
const settingsPatience = 10 * time.Second

// endPatience is how long a call-in that was killed may take to end. It takes longer only while it waits in the kernel
// for what nobody can interrupt.
const endPatience = 5 * time.Second

// enter moves the calling thread into the stager's mount and network namespace, and into
// no other. The caller has locked the thread and uses it for nothing else afterwards.
func (p *Pod) enter() error {
	if p.State.Phase == Dead {
		return fmt.Errorf("pod %q is dead; launcher gc deletes it", p.Plan.Name)
	}
	if p.State.Phase == Exited {
		return fmt.Errorf("pod %q %w", p.Plan.Name, ErrEnded)
	}
	fd, err := p.State.Stager.open()
	switch {
	case errors.Is(err, errGone) && p.State.Stager.PID == 0:
		return fmt.Errorf("pod %q is %s", p.Plan.Name, p.State.Phase) // its stager has not been started
	case errors.Is(err, errGone):
		return fmt.Errorf("pod %q %w", p.Plan.Name, ErrEnded)
	case err != nil:
		return fmt.Errorf("enter pod %q: %w", p.Plan.Name, err)
	}
	defer func() { _ = unix.Close(fd) }()
	root, err := p.State.Stager.root(fd)
	if err != nil {
		return fmt.Errorf("enter pod %q: %w", p.Plan.Name, err)
	}
	defer func() { _ = unix.Close(root) }()
	if err := enterStager(fd, root); err != nil {
		return fmt.Errorf("enter pod %q: %w", p.Plan.Name, err)
	}
	return nil
}

// enterStager moves the calling thread into a process's namespaces and root.
func enterStager(process, root int) error {
	// A thread that shares root and working directory with others may not
	// change its mount namespace, see setns(2).
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(process, unix.CLONE_NEWNS|unix.CLONE_NEWNET); err != nil {
		return err
	}
	// If the launcher itself runs in a chroot, the stager's root is not the root of its
	// mount namespace.
	if err := errors.Join(unix.Fchdir(root), unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	return nil
}

// notExecuted explains why a call-in could not be executed. The calling thread has
// entered the pod.
func (p *Pod) notExecuted(name string, err error) error {
	path := names.CallInDir + "/" + name
	if failed := (*os.PathError)(nil); errors.As(err, &failed) {
		err = failed.Err // its path is in the message
	}
	// A missing interpreter of a program is also ENOENT.
	if _, missing := os.Lstat(path); !errors.Is(missing, fs.ErrNotExist) {
		return fmt.Errorf("execute %s in pod %q: %w", path, p.Plan.Name, explain(err, path))
	}
	entries, err := os.ReadDir(names.CallInDir)
	if err != nil || len(entries) == 0 {
		return fmt.Errorf("the stager of pod %q has no call-ins", p.Plan.Name)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	return fmt.Errorf("the stager of pod %q has no call-in %q; known call-ins: %s", p.Plan.Name, name,
		strings.Join(have, ", "))
}

// Call is a call-in of a stager.
type Call struct {
	Name  string // a file in the stager's folder of call-ins
	Args  []string
	Stdio [3]*os.File // the call-in's descriptors 0, 1 and 2
	// Settings, unless nil, are what the call-in must read from descriptor 3 to its end within 10 seconds of its start.
	Settings []byte
	// Env is the call-in's environment, beside HOME.
	Env []string
	// Signals are passed to the call-in; nil for none. The channel stays open.
	Signals <-chan os.Signal
}

// RunSettings are Call.Settings, in JSON, of the call-in `run` (stager specification, run).
type RunSettings struct {
	Exec             []string      `json:"exec"`
	User             string        `json:"user"`
	Group            string        `json:"group"`
	SupplementaryGID []int         `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string        `json:"workingDirectory,omitempty"`
	Environment      []Environment `json:"environment,omitempty"`
	TTY              bool          `json:"tty,omitempty"`
}

// Encode returns the settings as Call.Settings.
func (s RunSettings) Encode() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // six bytes in place of one, of the 1 MiB that settings may have
	if err := encoder.Encode(s); err != nil {
		return nil, fmt.Errorf("encode settings of a command: %w", err)
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// Execute runs a call-in and returns its exit status, 128+N if signal N ended it. The error lists the stager's call-ins
// if the stager does not have it. Execute kills a call-in that does not read its settings, and, when ctx ends, any: the
// supervisor then kills the call-in's command with all processes of its session. The error wraps ctx's cause then, and
// says so if the call-in does not end.
func (p *Pod) Execute(ctx context.Context, c Call) (int, error) {
	var feed *settingsFeed
	if c.Settings != nil {
		var err error
		if feed, err = newFeed(c.Settings); err != nil {
			return 0, err
		}
		defer feed.close()
	}
	child, ended, err := p.startCall(c, feed)
	if err != nil {
		return 0, err
	}
	return c.await(ctx, child, ended, feed)
}

// await returns the exit status of a call-in, as Execute does. feed is nil without settings.
func (c Call) await(ctx context.Context, child *os.Process, ended <-chan Exit, feed *settingsFeed) (int, error) {
	late := time.NewTimer(settingsPatience)
	defer late.Stop()
	var killed error
	var overdue <-chan time.Time // nil before a kill
	stop := ctx.Done()
	for {
		select {
		case exit := <-ended:
			return exit.Code, killed
		case sig := <-c.Signals:
			_ = child.Signal(sig) // a child that has ended is reported by its channel
			continue
		case <-stop:
			killed, stop = context.Cause(ctx), nil
		case <-late.C:
			if feed == nil || feed.isRead() {
				continue
			}
			killed = cmp.Or(killed, fmt.Errorf("%s has not read its settings within %s and was killed", c.Name,
				settingsPatience))
		case <-overdue:
			return 0, fmt.Errorf("%w; %s (PID %d) has not ended within %s after it was killed", killed, c.Name, child.Pid,
				endPatience)
		}
		if err := child.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			killed = errors.Join(killed, fmt.Errorf("kill %s: %w", c.Name, err))
		}
		overdue = time.After(endPatience)
	}
}

// startCall forks the call-in on a thread inside the pod.
func (p *Pod) startCall(c Call, feed *settingsFeed) (*os.Process, <-chan Exit, error) {
	files := c.Stdio[:]
	if feed != nil {
		files = append(files, feed.read)
	}
	path := names.CallInDir + "/" + c.Name
	return onThread(func() (*os.Process, error) {
		if err := p.enter(); err != nil {
			return nil, err
		}
		process, err := os.StartProcess(path, append([]string{path}, c.Args...), &os.ProcAttr{
			Env:   append([]string{"HOME=/root"}, c.Env...), // and nothing of the caller's
			Files: files,
			Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
		if err != nil {
			return nil, p.notExecuted(c.Name, err)
		}
		return process, nil
	})
}

// settingsFeed is a pipe that the settings of a `run` are written to.
type settingsFeed struct {
	read    *os.File
	written chan error
}

func newFeed(settings []byte) (*settingsFeed, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make settings pipe: %w", err)
	}
	f := &settingsFeed{read: read, written: make(chan error, 1)}
	go func() {
		_, err := io.Copy(write, bytes.NewReader(settings))
		f.written <- errors.Join(err, write.Close())
	}()
	return f, nil
}

// isRead reports whether all has been written to the pipe and read from it. Our copy of the
// read end is kept to find that out.
func (f *settingsFeed) isRead() bool {
	select {
	case err := <-f.written:
		if err != nil {
			return false
		}
	default:
		return false
	}
	left, err := unix.IoctlGetInt(int(f.read.Fd()), unix.TIOCINQ)
	return err == nil && left == 0
}

func (f *settingsFeed) close() { _ = f.read.Close() }
