package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/examples/vm/line"
)

// Programs and files of the image, see build.sh.
const (
	qemuProgram      = "/usr/bin/qemu-system-x86_64"
	virtiofsdProgram = "/usr/lib/qemu/virtiofsd"
	kernelFile       = "/vm/vmlinuz"
	initrdFile       = "/vm/initrd"
)

// Names that both sides of the machine know.
const (
	shareTag = "pod"  // the file system
	portName = "line" // the serial port
)

// killLimit bounds the wait for qemu to end after the guest has said that the
// pod is over.
const killLimit = 10 * time.Second

// machineConfig describes a virtual machine. It is plain data.
type machineConfig struct {
	Share   string // the folder that is the guest's root
	Memory  int    // MiB
	CPUs    int
	Forward []forward
}

// forward is a port of the pod's network namespace that leads to one of the guest's.
type forward struct {
	Protocol string // "tcp" or "udp"
	Port     uint
}

// Descriptors of qemu.
const (
	lineDescriptor  = 3
	shareDescriptor = 4
)

// arguments returns qemu's arguments.
func (c machineConfig) arguments(a accelerator) []string {
	memory := strconv.Itoa(c.Memory) + "M"
	network := "user,id=net"
	for _, f := range c.Forward {
		network += fmt.Sprintf(",hostfwd=%s::%d-:%[2]d", f.Protocol, f.Port)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-machine", "q35,memory-backend=memory,usb=off,vmport=off", "-m", memory, "-smp", strconv.Itoa(c.CPUs),
		"-object", "memory-backend-memfd,id=memory,share=on,size=" + memory,
		"-kernel", kernelFile, "-initrd", initrdFile,
		// panic=-1 and -no-reboot: a guest that is lost ends qemu.
		"-append", "console=ttyS0 quiet loglevel=3 oops=panic panic=-1" + a.kernel,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-chardev", fmt.Sprintf("socket,id=line,fd=%d", lineDescriptor),
		"-device", "virtserialport,chardev=line,name=" + portName,
		"-chardev", fmt.Sprintf("socket,id=share,fd=%d", shareDescriptor),
		"-device", "vhost-user-fs-pci,chardev=share,tag=" + shareTag,
		"-netdev", network, "-device", "virtio-net-pci,netdev=net,romfile=",
	}
	return append(args, a.args...)
}

// machine is a virtual machine that runs: qemu, and virtiofsd, which serves
// its file system.
type machine struct {
	line *line.Line
	qemu *exec.Cmd
	fs   *exec.Cmd

	// gone is closed when both programs have ended; err says how.
	gone chan struct{}
	err  error
}

// startMachine starts a virtual machine. What the guest's kernel says goes to console.
// Both programs die with the calling thread, which must not end before this program does.
func startMachine(c machineConfig, a accelerator, console io.Writer) (*machine, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("start virtual machine: %w", err)
	}
	defer theirs.Close()
	m := &machine{line: line.New(ours, line.EndA, nil), gone: make(chan struct{})}
	if err := m.start(c, a, console, theirs); err != nil {
		m.kill()
		ours.Close()
		return nil, fmt.Errorf("start virtual machine: %w", err)
	}
	served := make(chan error, 1)
	go func() {
		served <- m.line.Serve()
		m.kill() // without the line it is of no use
	}()
	go m.wait(served)
	return m, nil
}

func (m *machine) start(c machineConfig, a accelerator, console io.Writer, line *os.File) error {
	share, err := m.serveShare(c.Share)
	if err != nil {
		return err
	}
	defer share.Close()
	m.qemu = exec.Command(qemuProgram, c.arguments(a)...)
	m.qemu.ExtraFiles = []*os.File{line, share} // lineDescriptor, shareDescriptor
	m.qemu.Stdout, m.qemu.Stderr = withoutReturns{console}, console
	return startChild(m.qemu)
}

// serveShare starts virtiofsd and returns a connection to it for qemu.
func (m *machine) serveShare(dir string) (*os.File, error) {
	socket := filepath.Join(filepath.Dir(dir), "share.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	defer listener.Close() // and the socket is removed
	listening, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer listening.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// Submounts are announced: every app's root and every volume is a file system of its own,
	// whose file numbers say nothing about another's.
	m.fs = exec.Command(virtiofsdProgram, "--fd=3", "-o", "source="+dir, "-o", "sandbox=chroot",
		"-o", "xattr", "-o", "announce_submounts", "-o", "log_level=err")
	m.fs.ExtraFiles = []*os.File{listening}
	m.fs.Stderr = os.Stderr
	if err := startChild(m.fs); err != nil {
		return nil, err
	}
	return conn.File()
}

// startChild starts a program that dies with this one.
func startChild(cmd *exec.Cmd) error {
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Start()
}

// wait waits for the end of both programs, of which neither is of use without the other.
// served gets what line.Serve returns.
func (m *machine) wait(served <-chan error) {
	type ending struct {
		name string
		err  error
	}
	ended := make(chan ending, 2)
	for _, cmd := range []*exec.Cmd{m.qemu, m.fs} {
		go func() { ended <- ending{filepath.Base(cmd.Path), cmd.Wait()} }()
	}
	first := <-ended
	m.kill()
	<-ended
	m.err = fmt.Errorf("%s ended", first.name)
	if first.err != nil {
		m.err = fmt.Errorf("%s: %w", first.name, first.err)
	}
	_ = m.line.Close() // it has no error
	if err := <-served; errors.Is(err, line.ErrPeer) {
		m.err = err // which is why it was killed
	}
	close(m.gone)
}

// kill kills both programs. It may be called at any time, by several goroutines at once.
func (m *machine) kill() {
	for _, cmd := range []*exec.Cmd{m.qemu, m.fs} {
		if cmd != nil && cmd.Process != nil {
			_ = cmd.Process.Kill() // it may have ended
		}
	}
}

// end waits for a machine whose guest powers itself off, and kills it if it does not.
func (m *machine) end() {
	late := time.AfterFunc(killLimit, m.kill)
	defer late.Stop()
	<-m.gone
}

// socketPair makes the two ends of the serial port: one for this program, one for qemu.
func socketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "line")
	file := os.NewFile(uintptr(fds[0]), "line")
	defer file.Close()
	ours, err = net.FileConn(file)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// withoutReturns drops the carriage returns of a terminal's output.
type withoutReturns struct{ to io.Writer }

// Write implements io.Writer.
func (w withoutReturns) Write(p []byte) (int, error) {
	if _, err := w.to.Write(bytes.ReplaceAll(p, []byte("\r"), nil)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// inOneLine returns an error's text with each run of white space as one space.
func inOneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
