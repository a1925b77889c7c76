// Command fakestager is a stager as small as can be, for the launcher's tests:
// it reports what it was given and behaves as the pod's name says.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"kurma.io/stager/names"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name != names.Program {
		refuseOthers(name)
	}
	switch name {
	case names.Status:
		if len(os.Args) > 1 {
			document, _ := json.MarshalIndent(os.Args[1:], "", "  ") // in several lines, as the stager's
			fmt.Println(string(document))
			return
		}
		document, err := os.ReadFile("/status") // of a test
		if err != nil {
			document = []byte(`{"one":{"pid":1,"exited":false}}`)
		}
		fmt.Println(string(document))
	case names.Logs:
		fmt.Println(name, strings.Join(os.Args[1:], " "))
		lines, _ := os.ReadFile("/lines") // of a test
		_, _ = os.Stdout.Write(lines)
	case names.Attach:
		fmt.Println(name, strings.Join(os.Args[1:], " "))
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case names.Run:
		run()
	case "extra":
		extra()
	default:
		stager()
	}
}

// extra is a call-in that the launcher does not know.
func extra() {
	cgroups, _ := os.ReadDir("/sys/fs/cgroup")
	_, err := os.Stat(names.Manifest)
	fmt.Println(os.Args[1:], os.Environ(), len(cgroups) > 0, err)
	fmt.Fprintln(os.Stderr, "to stderr")
	_, _ = io.Copy(os.Stdout, os.Stdin)
	os.Exit(42)
}

func stager() {
	data, err := os.ReadFile("/manifest")
	if err != nil {
		fail(err)
	}
	var manifest struct {
		Name          string
		AppImageOrder map[string]any
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		fail(err)
	}
	switch manifest.Name {
	case "fails":
		fail("manifest: this pod fails")
	case "dies":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if manifest.Name == "ends" {
		signal.Notify(stop, syscall.SIGUSR1) // which is lost otherwise
	}
	report()
	switch manifest.Name { // before a test hears that we are ready
	case "slow":
		waitForLeave()
	case "talks", "elsewhere":
		talk(manifest.AppImageOrder, manifest.Name == "talks")
	case "ends":
		_ = os.MkdirAll(names.LogDir+"/one", 0o755)
		_ = os.WriteFile(names.LogDir+"/one/0000000001.log", []byte("2026-11-21T03:00:01.000000000Z stdout F last words\n"),
			0o644)
		signal.Notify(stop, syscall.SIGUSR1)
	}
	_ = syscall.Close(4)
	switch manifest.Name {
	case "talks":
		os.Exit(3)
	case "ends":
		<-stop
		os.Exit(3)
	case "stubborn":
		for {
			<-stop
		}
	case "leaves-a-child":
		child := exec.Command(names.Exec)
		child.Env = []string{"CHILD=1"}
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fail(err)
		}
		os.Exit(0)
	}
	<-stop
}

// talk writes a line to the log of each app, whose lock it holds to its end if locked is set.
func talk(apps map[string]any, locked bool) {
	for name := range apps {
		dir := filepath.Join(names.LogDir, name)
		_ = os.MkdirAll(dir, 0o755)
		_ = os.WriteFile(filepath.Join(dir, "0000000001.log"), []byte("2026-11-21T03:00:01.000000000Z stdout F words\n"),
			0o644)
		lock, err := syscall.Open(filepath.Join(dir, "lock"), syscall.O_CREAT|syscall.O_RDWR, 0o644)
		if err != nil {
			fail(err)
		}
		held := syscall.Flock_t{Type: syscall.F_WRLCK}
		const setLock = 37 // F_OFD_SETLK
		if locked && syscall.FcntlFlock(uintptr(lock), setLock, &held) != nil {
			fail("lock of a log")
		}
	}
}

// waitForLeave reports to a test that the stager has started, and waits for SIGUSR1.
func waitForLeave() {
	leave := make(chan os.Signal, 1)
	signal.Notify(leave, syscall.SIGUSR1, syscall.SIGTERM)
	if err := os.WriteFile("/volumes/gate/fifo", []byte("up\n"), 0); err != nil {
		fail(err)
	}
	if <-leave == syscall.SIGTERM {
		fail("stopped while it started")
	}
}

// report writes down what a test wants to see of the stager's surroundings.
func report() {
	if os.Getenv("CHILD") != "" {
		time.Sleep(time.Hour)
	}
	fds := descriptors()
	cwd, _ := os.Getwd()
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	session, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	cgroup, _ := os.ReadFile("/proc/self/cgroup")
	links, _ := os.ReadFile("/proc/net/dev")
	data, _ := json.Marshal(map[string]any{
		"args": os.Args, "env": os.Environ(), "fds": fds, "cwd": cwd, "umask": mask,
		"leader": int(session) == os.Getpid(), "mounts": string(mounts), "cgroup": string(cgroup), "net": string(links),
	})
	_ = os.WriteFile("/report", data, 0o644)
}

// descriptors lists those that this process was started with, which alone are not
// close-on-exec, and what they are of.
func descriptors() map[string]string {
	fds := map[string]string{}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		fd, _ := strconv.Atoi(e.Name())
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			fds[e.Name()], _ = os.Readlink("/proc/self/fd/" + e.Name())
		}
	}
	return fds
}

// refuseOthers ends a call-in that has more descriptors than it is to have: stdio and,
// of run, the settings.
func refuseOthers(callIn string) {
	fds := descriptors()
	for _, fd := range []string{"0", "1", "2"} {
		delete(fds, fd)
	}
	if callIn == "run" {
		delete(fds, "3")
	}
	if len(fds) > 0 {
		fail(fmt.Sprintf("%s was given %v", callIn, fds))
	}
}

func run() {
	if os.Args[1] == "deaf" {
		time.Sleep(time.Hour)
	}
	data, err := io.ReadAll(os.NewFile(3, "settings"))
	if err != nil {
		fail(err)
	}
	var settings struct{ Exec []string }
	if err := json.Unmarshal(data, &settings); err != nil {
		fail(err)
	}
	switch settings.Exec[0] {
	case "settings":
		fmt.Println(string(data))
		fmt.Println(os.Environ())
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "exit":
		var code int
		fmt.Sscan(settings.Exec[1], &code)
		os.Exit(code)
	case "raw":
		setRaw()
		fmt.Println("raw")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "signal":
		got := make(chan os.Signal, 1)
		signal.Notify(got)
		fmt.Println("ready")
		fmt.Println(<-got)
	}
}

// setRaw turns echo and line editing of the caller's terminal off.
func setRaw() {
	var termios syscall.Termios
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TCGETS, uintptr(unsafe.Pointer(&termios)))
	termios.Lflag &^= syscall.ECHO | syscall.ICANON
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TCSETS, uintptr(unsafe.Pointer(&termios)))
}

func fail(what any) {
	fmt.Fprintln(os.Stderr, "stager:", what)
	os.Exit(1)
}
