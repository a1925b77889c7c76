// Package firstprocess is the suite that every first process of a stager passes: package waiter's in C and
// package pid1's in Go. A package's test program is the first process and the supervisor, and plays
// the daemon.
package firstprocess

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/daemon"
)

// roleVariable says what the supervisor does, namespacesVariable which namespaces it wants.
const (
	roleVariable       = "FIRST_PROCESS_ROLE"
	namespacesVariable = "FIRST_PROCESS_NAMESPACES"
	roleSender         = "sender" // of a child of the supervisor, see takeSignals
)

// Line is the supervisor's side of its line to the first process; boot.Waiter has the contract.
type Line interface {
	Settle(namespaces uintptr, ready *os.File) error
	Up() error
	Watch(stop, lost func())
}

// Environment returns the variables that make a supervisor play a role of Supervise, in namespaces as in clone(2).
func Environment(role string, namespaces uintptr) []string {
	return []string{roleVariable + "=" + role, fmt.Sprintf("%s=%d", namespacesVariable, namespaces)}
}

// IsWanted reports whether this process was started by a test of the suite.
func IsWanted() bool { return os.Getenv(roleVariable) != "" }

// Namespaces returns the namespaces that a test wants for the supervisor, as in clone(2).
func Namespaces() uintptr {
	n, err := strconv.ParseUint(os.Getenv(namespacesVariable), 10, 64)
	if err != nil {
		panic(err)
	}
	return uintptr(n)
}

// Supervise is the supervisor, in the role that a test wants. ready is the ready pipe, or nil; ignore is
// supervisor.IgnoreSignals. Supervise ends the process.
func Supervise(line Line, ready *os.File, ignore func() (release func())) {
	role := os.Getenv(roleVariable)
	if role == "early" {
		os.Exit(3)
	}
	if role == "alone" {
		holdProgram()
	}
	if err := line.Settle(Namespaces(), ready); err != nil {
		if role == "alone" {
			_, _ = unix.Poll(nil, 200) // the end takes a while
		}
		os.Exit(0) // the first process starts this one again
	}
	if role == "ready" {
		_ = ready.Close()
		say("closed")
		await()
	}
	if err := line.Up(); err != nil {
		say("up: " + err.Error())
	}
	say("up")
	switch role {
	case "exit", "alone":
		os.Exit(7)
	case "killed":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	case "ready", "deaf":
		await()
	case "watch":
		line.Watch(func() { say("stop") }, func() { say("lost") })
	case "orphans":
		cmd := exec.Command("sh", "-c", "setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' &")
		cmd.Stdout = os.Stdout
		if err := cmd.Run(); err != nil {
			say(err.Error())
		}
	case "state":
		sayState()
	case "signals":
		defer ignore()()
		takeSignals()
	case "fault":
		defer ignore()()
		var none *os.ProcAttr
		none.Dir = "a fault"
	case "mount":
		if err := unix.Mount("inside", "/mnt", "tmpfs", 0, ""); err != nil {
			say(err.Error())
		}
		say("mounted")
		await()
		text, _ := os.ReadFile("/proc/thread-self/mountinfo")
		fmt.Fprintf(os.Stdout, "%q\n", text)
	}
	os.Exit(0)
}

// holdProgram ends the process with 9 if another one has called holdProgram and has not ended.
func holdProgram() {
	program, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Flock(program, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		os.Exit(9)
	}
}

// takeSignals has a child send this process every signal, as an app of user 0 can. If this process survives, it
// prints how the child ended.
func takeSignals() {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		say(err.Error())
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestFirstProcess$")
	cmd.Args[0] = roleSender // not the stager's name
	cmd.Env = append(os.Environ(), roleVariable+"="+roleSender)
	if out, err := cmd.CombinedOutput(); err != nil {
		say(string(out))
	}
	say("signals are sent")
}

// LeaveRoot is the supervisor of KeepsRoot. It ends the process, with 7 if it cannot leave the stager's root, and sees
// the volume if there is one.
func LeaveRoot() {
	volume, err := daemon.HasVolume()
	if !volume {
		err = daemon.LeaveChroot()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(7)
}

// sayState prints what the supervisor has inherited.
func sayState() {
	status, _ := os.ReadFile("/proc/thread-self/status") // the kernel always has it
	dir, err := os.Getwd()
	fmt.Fprintf(os.Stdout, "%s\ndirectory: %s %v\numask: %o\nend\n", status, dir, err, unix.Umask(0))
}

// say writes a line for the test.
func say(line string) { fmt.Fprintln(os.Stdout, line) }

// await waits for a byte of the test, or the end of its pipe.
func await() { _, _ = os.Stdin.Read(make([]byte, 1)) }
