package kubernetes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// order is what a test has a node's agent do: a line of JSON on its standard input. The answer is a line of JSON, a
// text that is empty unless something failed.
type order struct {
	Start []string // a program and its arguments
	Kill  string   // the name of a program that was started
	Name  string   // of the program that Start starts
	Log   string   // the file to which its output is appended
}

// enterNode moves the process, PID 1 of a node, into a cgroup and a cgroup namespace, and executes the agent.
func enterNode() error {
	name := os.Args[1]
	if err := enterCgroups(os.Getenv(cgroupVariable) + "/" + name); err != nil {
		return err
	}
	runtime.LockOSThread() // the thread that execve(2) leaves is this one
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("unshare cgroup namespace: %w", err)
	}
	if err := os.Setenv(stageVariable, "agent"); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// machineSysctls are those that kubelet would set for the whole machine, with the values that it wants.
func machineSysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
		"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
	}
}

// prepareNode gives the node mounts of its own: what a kubelet and a runtime keep is in the node's folder.
func prepareNode(name, dir string) error {
	errs := []error{privateMounts(), mountCgroups(), unix.Sethostname([]byte(name))}
	for _, place := range []string{"/run", "/var/log", "/var/lib"} {
		own := filepath.Join(dir, place)
		errs = append(errs, os.MkdirAll(own, 0o755), unix.Mount(own, place, "", unix.MS_BIND, ""))
	}
	for sysctl, value := range machineSysctls() {
		own := filepath.Join(dir, "sysctl", sysctl)
		errs = append(errs, os.MkdirAll(filepath.Dir(own), 0o755), os.WriteFile(own, []byte(value+"\n"), 0o644),
			unix.Mount(own, "/proc/sys/"+sysctl, "", unix.MS_BIND, ""))
	}
	for sysctl, value := range map[string]string{"ipv4/ip_forward": "1", "bridge/bridge-nf-call-iptables": "1"} {
		if _, err := os.Stat("/proc/sys/net/" + sysctl); err == nil {
			errs = append(errs, os.WriteFile("/proc/sys/net/"+sysctl, []byte(value), 0))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return ip("link", "set", "lo", "up")
}

// agent is PID 1 of a node. It starts and kills programs, and collects all processes that end.
type agent struct {
	mu      sync.Mutex
	started map[string]int
	ended   *sync.Cond
	running map[int]bool
}

// serveNode is the agent's main.
func serveNode() error {
	if err := prepareNode(os.Args[1], os.Args[2]); err != nil {
		return err
	}
	a := &agent{started: make(map[string]int), running: make(map[int]bool)}
	a.ended = sync.NewCond(&a.mu)
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			a.reap()
		}
	}()
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(""); err != nil {
		return err
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		err := json.Unmarshal(in.Bytes(), &o)
		if err == nil {
			err = a.obey(o)
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if err := answers.Encode(text); err != nil {
			return err
		}
	}
	os.Exit(0) // the kernel ends the node
	return nil
}

func (a *agent) reap() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if err != nil || pid <= 0 {
			return
		}
		delete(a.running, pid)
		a.ended.Broadcast()
	}
}

func (a *agent) obey(o order) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.Kill != "" {
		pid := a.started[o.Kill]
		if !a.running[pid] {
			return fmt.Errorf("%s does not run", o.Kill)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return fmt.Errorf("kill %s: %w", o.Kill, err)
		}
		for a.running[pid] {
			a.ended.Wait()
		}
		return nil
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	program, err := exec.LookPath(o.Start[0])
	if err != nil {
		return err
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		return err
	}
	defer null.Close()
	// Not by package exec: it would wait for the process that reap collects.
	process, err := os.StartProcess(program, o.Start, &os.ProcAttr{
		Env: append(os.Environ(), stageVariable+"="), Files: []*os.File{null, log, log}, Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", o.Name, err)
	}
	a.started[o.Name], a.running[process.Pid] = process.Pid, true
	return nil
}
