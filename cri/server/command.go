package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// notRun is the exit status of a command that the stager could not run, and may be that of a command, see daemon.Exec.
const notRun = 125

// command runs a command in a container, and returns its exit status. It is an error that the stager could not run the
// command: kubelet would take the stager's exit status for the command's, and a probe for one that fails.
func (s *Server) command(
	ctx context.Context, pod *pods.Pod, app pods.App, c daemon.Command, its streams,
) (int, error) {
	// No program knows the name. Its first character ends no usual output: messages would hold that until more comes.
	said := &messages{name: "␞" + records.NewID(), to: its.errOut}
	its.errOut = said
	if its.tty {
		said.to, its.out = its.out, said
	}
	code, err := carry(ctx, its, func(caller daemon.Caller) (int, error) {
		caller.Name = said.name
		return s.daemon.Exec(ctx, pod, app, c, caller)
	})
	if err != nil {
		return 0, err
	}
	return code, said.end(code)
}

// messages passes on what is written to it, up to the message of a stager that begins with a name. It passes on the
// name's beginning when it knows that the rest does not follow.
type messages struct {
	name  string
	to    io.Writer // nil for nothing
	held  []byte
	found bool // held is the message, without the name
}

// maxWords is the most bytes of a stager's message; the rest is dropped.
const maxWords = 4 << 10

func (m *messages) Write(p []byte) (int, error) {
	m.held = append(m.held, p...)
	if m.found {
		m.held = m.held[:min(len(m.held), maxWords)]
		return len(p), nil
	}
	before, message, found := bytes.Cut(m.held, []byte(m.name+": "))
	m.found = found
	if !found {
		whole := m.held
		n := min(len(whole), len(m.name)+1)
		for !strings.HasPrefix(m.name+": ", string(whole[len(whole)-n:])) {
			n--
		}
		before, message = whole[:len(whole)-n], whole[len(whole)-n:]
	}
	err := m.pass(before)
	m.held = bytes.Clone(message)
	return len(p), err
}

func (m *messages) pass(text []byte) error {
	if m.to == nil || len(text) == 0 {
		return nil
	}
	_, err := m.to.Write(text)
	return err
}

// end passes on what is held when a command has ended with that status, or returns it as an error.
func (m *messages) end(code int) error {
	switch {
	case m.found && code == notRun:
		return fmt.Errorf("run command: %s", bytes.TrimSpace(m.held))
	case m.found:
		return m.pass(append([]byte(names.Run+": "), m.held...))
	}
	return m.pass(m.held)
}
