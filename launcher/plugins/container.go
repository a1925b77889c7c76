package plugins

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
)

const (
	// maxOutput is the most that a plugin may write to stdout; a result is far smaller.
	maxOutput = 1 << 20
	// maxWords is how much of the end of a plugin's stderr is kept for an error and the log.
	maxWords = 16 << 10
	// maxLog is the size at which a plugin's log is emptied.
	maxLog = 1 << 20
	// afterEnd is how long the pipes of a plugin that has ended may stay open: a process that
	// setup leaves behind may have kept them.
	afterEnd = 200 * time.Millisecond
	// afterKill is how long the processes of a plugin that was killed may take to end.
	afterKill = 5 * time.Second
)

// container is a running plugin container.
type container struct {
	pod *pods.Pod
	log string
}

// Variables by which `setup` may do more.
const (
	// checkPods asks to check the pods that are connected as well.
	checkPods = "NETWORK_CHECK=1"
	// idle says that no other call of the network runs until `setup` has ended: the plugin may
	// remove what earlier calls that were killed have left.
	idle = "NETWORK_IDLE=1"
	// livePods begins the list of pods that may be connected, see package netplugins/plugin.
	livePods = "NETWORK_PODS="
)

// idleVariables are those of a setup beside which no other call runs.
func (c *Containers) idleVariables() ([]string, error) {
	if c.Live == nil {
		return []string{idle}, nil
	}
	pods, err := c.Live()
	return []string{idle, livePods + strings.Join(pods, " ")}, err
}

// setup calls `setup` with variables.
func (c *container) setup(ctx context.Context, config string, env ...string) error {
	_, err := c.run(ctx, networks.Call{Config: config, Env: env}, callDir+"/setup")
	return err
}

func arguments(name string, call networks.Call) []string {
	args := []string{callDir + "/" + name, call.Namespace, call.UUID}
	if call.Interface != "" {
		args = append(args, call.Interface)
	}
	return args
}

// settingsOf returns the settings of the call-in `run` for an executable of the plugin.
func settingsOf(call networks.Call, argv []string) pods.RunSettings {
	s := pods.RunSettings{Exec: argv, User: "0", Group: "0", Environment: []pods.Environment{{
		Name:  hostVariable,
		Value: fmt.Sprintf("/proc/%d/root", os.Getpid()),
	}}}
	for _, e := range call.Env {
		key, value, _ := strings.Cut(e, "=")
		s.Environment = append(s.Environment, pods.Environment{Name: key, Value: value})
	}
	return s
}

// run runs one of the plugin's executables and returns what it wrote to stdout. The error wraps errLost if the
// container has ended meanwhile.
func (c *container) run(ctx context.Context, call networks.Call, argv ...string) ([]byte, error) {
	name := argv[0][len(callDir)+1:]
	text, err := settingsOf(call, argv).Encode()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p, err := newPipes(call.Config, func() { cancel(fmt.Errorf("more than %d bytes printed", maxOutput)) })
	if err != nil {
		return nil, err
	}
	code, err := c.pod.Execute(ctx, pods.Call{Name: "run", Args: []string{app}, Stdio: p.stdio, Settings: text})
	patience := afterEnd
	if err != nil {
		patience = afterKill
	}
	stdout, stderr := p.finish(patience)
	c.writeLog(name, call.UUID, stderr)
	switch {
	case err != nil:
		return nil, c.orLost(ctx, fmt.Errorf("%s: %w%s", name, err, words(stderr)))
	case code != 0:
		return nil, c.orLost(ctx, fmt.Errorf("%s: exit status %d%s", name, code, words(append(stderr, stdout...))))
	}
	return stdout, nil
}

// words returns a plugin's words for an error, in one line.
func words(text []byte) string {
	line := strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " ")
	const enough = 1 << 10
	switch {
	case line == "":
		return ""
	case len(line) > enough:
		line = "…" + line[len(line)-enough:]
	}
	return ": " + line
}

// writeLog adds what a plugin has written to stderr to the network's log. A log that cannot be
// written costs the log only.
func (c *container) writeLog(name, uuid string, text []byte) {
	if len(bytes.TrimSpace(text)) == 0 {
		return
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if info, err := os.Stat(c.log); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	file, err := os.OpenFile(c.log, flags, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	fmt.Fprintf(file, "%s %s %s\n%s\n", time.Now().UTC().Format(time.RFC3339), name, uuid, bytes.TrimSpace(text))
}

// pipes are a plugin's stdin, stdout and stderr. What it writes is read at once, so that a
// plugin never waits for its reader.
type pipes struct {
	stdio   [3]*os.File // the plugin's ends
	readers [2]*os.File
	done    sync.WaitGroup

	mu             sync.Mutex
	stdout, stderr []byte // guarded by mu
}

// newPipes makes the pipes and feeds stdin. It calls tooMuch when stdout is longer than
// maxOutput.
func newPipes(stdin string, tooMuch func()) (*pipes, error) {
	p := &pipes{}
	var files []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("make pipe for plugin: %w", err)
		}
		files = append(files, r, w)
	}
	p.stdio = [3]*os.File{files[0], files[3], files[5]}
	p.readers = [2]*os.File{files[2], files[4]}
	go func() {
		_, _ = io.WriteString(files[1], stdin) // a plugin need not read it
		_ = files[1].Close()
	}()
	p.done.Go(func() { p.read(files[2], func(data []byte) { p.takeOutput(data, tooMuch) }) })
	p.done.Go(func() { p.read(files[4], p.takeWords) })
	return p, nil
}

func (p *pipes) read(from *os.File, take func([]byte)) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		take(buffer[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *pipes) takeOutput(data []byte, tooMuch func()) {
	if len(p.stdout) > maxOutput {
		return
	}
	if p.stdout = append(p.stdout, data...); len(p.stdout) > maxOutput {
		tooMuch()
	}
}

func (p *pipes) takeWords(data []byte) {
	p.stderr = append(p.stderr, data...)
	if more := len(p.stderr) - maxWords; more > 0 {
		p.stderr = append(p.stderr[:0], p.stderr[more:]...)
	}
}

// finish closes the plugin's ends here, waits for the end of its output, at most as long as
// patience, and returns the output.
func (p *pipes) finish(patience time.Duration) (stdout, stderr []byte) {
	_ = errors.Join(p.stdio[0].Close(), p.stdio[1].Close(), p.stdio[2].Close())
	late := time.AfterFunc(patience, func() {
		for _, r := range p.readers {
			_ = r.Close()
		}
	})
	p.done.Wait()
	late.Stop()
	for _, r := range p.readers {
		_ = r.Close() // again, if it was late
	}
	return p.stdout, p.stderr
}
