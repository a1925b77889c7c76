package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// A monitored is a container of runc's with a conmon.
type monitored struct {
	pod    *ociPod
	cmd    *exec.Cmd // conmon
	logDir string
}

// monitor starts a container that runs args under conmon, the way CRI-O and
// Podman do. The caller closes it.
func (o *oci) monitor(args ...string) (*monitored, error) {
	p, err := o.newPod(1, way{degree: 1}, args...)
	if err != nil {
		return nil, err
	}
	m := &monitored{pod: p, logDir: filepath.Join(p.dir, "log")}
	if err := os.Mkdir(m.logDir, 0o755); err != nil {
		return nil, err
	}
	if err := p.mountRoot(p.apps[0]); err != nil {
		return nil, err
	}
	if err := m.create(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	if err := p.run(p.command("start", p.apps[0])); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// create starts conmon, which creates the container, and waits until it says
// the container's PID.
func (m *monitored) create() error {
	app := m.pod.apps[0]
	runtime, err := exec.LookPath(m.pod.runtime.name)
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	m.cmd = exec.Command("conmon", "--sync", "--api-version", "1",
		"--cid", app, "--cuuid", app, "--name", app,
		"--runtime", runtime, "--runtime-arg", "--root="+filepath.Join(m.pod.dir, "state"),
		"--bundle", m.pod.bundle(app), "--container-pidfile", filepath.Join(m.pod.dir, "pid"),
		"--log-path", filepath.Join(m.logDir, "0"), "--socket-dir-path", m.pod.dir, "--full-attach",
		"--log-level", "error")
	m.cmd.Env = append(os.Environ(), "_OCI_SYNCPIPE=3")
	m.cmd.ExtraFiles = []*os.File{write}
	err = m.cmd.Start()
	write.Close()
	if err != nil {
		return fmt.Errorf("start conmon: %w", err)
	}
	if line, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for conmon to create %s: %w: %s", app, err, line)
	}
	return nil
}

func (m *monitored) close() error {
	err := m.pod.run(m.pod.command("kill", m.pod.apps[0], "KILL"))
	if m.cmd != nil && m.cmd.Process != nil {
		var exit *exec.ExitError
		// It returns the container's exit code, 137 of SIGKILL or as its version has it.
		if e := m.cmd.Wait(); e != nil && !errors.As(e, &exit) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, m.pod.close())
}
