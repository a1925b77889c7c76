package containertest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// Apps of a pod share its PID namespace and must not share data: no process can read the
// namespace's PID 1, another app or a command in that app. Signals are allowed.
func apartCases() []testCase {
	return []testCase{
		{"the probe reads its own process", probeItself},
		{"user 0 reads no other process", func(b *bench) { readNone(b, func(*spec.Process) {}) }},
		{"user 0 without capabilities reads no other process", func(b *bench) {
			readNone(b, func(p *spec.Process) { p.Capabilities = nil })
		}},
		{"another user reads no other process", func(b *bench) {
			readNone(b, func(p *spec.Process) { p.User, p.Group = "1000", "1000" })
		}},
		{"user 0 with CAP_SYS_PTRACE reads no other process", func(b *bench) {
			readNone(b, func(p *spec.Process) { p.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_PTRACE") })
		}},
		{"user 0 with CAP_PERFMON reads no other process", func(b *bench) {
			readNone(b, func(p *spec.Process) { p.Capabilities = append(spec.DefaultCapabilities(), "CAP_PERFMON") })
		}},
		{"no app reads or changes a process that starts", func(b *bench) { closedStarts(b) }},
		{"no app with CAP_SYS_PTRACE reads or changes a process that starts", func(b *bench) { closedStarts(b, "CAP_SYS_PTRACE") }},
		{"an app reads or changes no command that starts in its own PID namespace", func(b *bench) { closedCommands(b) }},
		{"an app with CAP_SYS_PTRACE reads or changes no command that starts in its own PID namespace", func(b *bench) {
			closedCommands(b, "CAP_SYS_PTRACE")
		}},
		{"an app that asks for it sees no thread of the supervisor", hiddenThreads},
	}
}

const probeCommand = "containertest-probe"

// probe tries every known way to read another process, and prints the working ones, one to a line.
// It is the test program inside a container.
func probe(target string) {
	pid, err := strconv.Atoi(target)
	if err != nil {
		fmt.Fprintln(os.Stdout, "probe:", err)
		return
	}
	runtime.LockOSThread()
	for name, try := range map[string]func(int) error{
		"root": openProc("root/"), "cwd": openProc("cwd/"), "environ": readProc("environ"), "mem": readProc("mem"),
		"fd": readLinks, "exe": openProc("exe"), "maps": readProc("maps"), "ns": openProc("ns/mnt"), "ptrace": ptrace, "attach": attach,
		"vm_readv": vmRead, "pidfd_getfd": getFD,
	} {
		if err := try(pid); err == nil {
			fmt.Fprintln(os.Stdout, "can", name)
		}
	}
	fmt.Fprintln(os.Stdout, "signal:", unix.Kill(pid, 0))
}

func openProc(name string) func(int) error {
	return func(pid int) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err == nil {
			f.Close()
		}
		return err
	}
}

// readLinks reads a link of the descriptors. User 0 may list their numbers.
func readLinks(pid int) error {
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	links, err := os.ReadDir(dir)
	for _, link := range links {
		if _, err = os.Readlink(dir + link.Name()); err == nil {
			return nil
		}
	}
	return err
}

// readProc counts opening mem as reading it: only the read at address 0 fails.
func readProc(name string) func(int) error {
	return func(pid int) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, name))
		if err != nil || name == "mem" {
			return err
		}
		defer f.Close()
		_, err = io.ReadAll(f)
		return err
	}
}

func ptrace(pid int) error {
	if err := unix.PtraceSeize(pid); err != nil {
		return err
	}
	return unix.PtraceDetach(pid)
}

func attach(pid int) error {
	if err := unix.PtraceAttach(pid); err != nil {
		return err
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return err
	}
	return unix.PtraceDetach(pid)
}

// vmRead reads an address that cannot be mapped: EFAULT means that the kernel allowed the read.
func vmRead(pid int) error {
	var b [8]byte
	local := []unix.Iovec{{Base: &b[0], Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
	if err == unix.EFAULT {
		return nil
	}
	return err
}

// getFD takes descriptor 0. Without one, EBADF means that the kernel would have allowed it.
func getFD(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	got, err := unix.PidfdGetfd(fd, 0, 0)
	switch {
	case err == nil:
		return unix.Close(got)
	case errors.Is(err, unix.EBADF):
		return nil
	}
	return err
}

// probing returns a spec of an app that probes the process with that PID.
func (b *bench) probing(pid string) spec.Spec {
	b.t.Helper()
	b.copy("/proc/self/exe", "probe")
	return b.sh("exec /probe " + probeCommand + " " + pid)
}

// probeItself checks that the probe can read its own process; otherwise it proves nothing.
func probeItself(b *bench) {
	r := b.run(b.probing("$$"))
	for _, way := range []string{"root", "cwd", "environ", "mem", "fd", "exe", "maps", "ns", "vm_readv", "pidfd_getfd"} {
		if !strings.Contains(r.text, "can "+way+"\n") {
			b.t.Errorf("the probe cannot read its own process by %s:\n%s", way, r.text)
		}
	}
}

func readNone(b *bench, change func(*spec.Process)) {
	other := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	cmd, err := other.tryExec(command("sleep", "1000"), spec.Stdio{})
	must(b.t, err)
	for target, pid := range map[string]int{"PID 1": 1, "other app": b.inPod(other.main.PID()), "command in the other app": b.inPod(cmd.PID())} {
		s := b.probing(strconv.Itoa(pid))
		change(&s.Process)
		r := b.run(s)
		if strings.Contains(r.text, "can ") || !strings.Contains(r.text, "signal:") || r.status != 0 {
			b.t.Errorf("the probe of the %s ends with status %#x and says:\n%s", target, r.status, r.text)
		}
		signal := "signal: <nil>"
		if target == "PID 1" && b.users() != "" {
			signal = "signal: operation not permitted"
		}
		if s.Process.User == "0" && len(s.Process.Capabilities) > 0 && !strings.Contains(r.text, signal) {
			b.t.Errorf("the probe of the %s does not say %q:\n%s", target, signal, r.text)
		}
	}
}

// hiddenThreads checks that /proc does not have PID 1 for an app with HideProcesses.
func hiddenThreads(b *bench) {
	s := b.sh("[ ! -e /proc/1/stat ] || echo init; [ -e /proc/self/stat ] && echo itself")
	s.HideProcesses = true
	b.wantRun(s, "itself\n")
}
