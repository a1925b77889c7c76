package tests

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/harness"
)

// Two apps signal each other, and communicate by shared memory, semaphores and message queues of
// System V and POSIX. The host does not see these objects.
func TestAppsShareSignalsAndIPC(t *testing.T) {
	clause.Covers(t, "C-NET-03")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	p := b.Up("p", harness.PodOf(suite.Command("one", "/probe/probe", "ipc-one"), suite.Command("other", "/probe/probe", "ipc-other")).HostVolume("probe", dir, "/probe"))
	for app, want := range map[string]string{
		"one":   "there is a signal: user defined signal 1\n",
		"other": "System V: memory, after its semaphore\nSystem V: message queue\nPOSIX: message queue\nPOSIX: memory, after its semaphore\n",
	} {
		code, reason := p.Exited(app)
		if diff := cmp.Diff(want, p.Logs(app)); diff != "" || code != 0 {
			t.Errorf("app %s: exit code %d %s (-want +have):\n%s", app, code, reason, diff)
		}
	}
	if _, err := unix.SysvShmGet(ipcKey, 0, 0); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the host has the memory as well: %v", err)
	}
	if _, err := os.Stat("/dev/shm" + ipcName); err == nil {
		t.Error("the host has the file as well")
	}
	p.Stop()
}

// A sidecar, or a command in it, has a server of the same user in another app load its configuration again. Another
// user cannot.
func TestASidecarReloadsAServer(t *testing.T) {
	clause.Covers(t, "C-NET-03")
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("sync", 0o755)
	harness.RunAll(t, []string{"mkfifo", "-m", "666", filepath.Join(dir, "pid")})
	server := suite.Shell("server", `n=0; trap 'n=$((n+1)); echo reloaded $n' HUP; echo pid $$; echo $$ >/sync/pid; while :; do sleep 1000 & wait; done`)
	sidecar := suite.Shell("sidecar", "read pid </sync/pid; kill -HUP $pid; exec sleep 1000")
	for _, app := range []*harness.AppDoc{&server, &sidecar} {
		app.App.User, app.App.Group = "1000", "1000"
	}
	p := b.Up("p", harness.PodOf(server, sidecar).HostVolume("sync", dir, "/sync"))
	p.Sees("server", "reloaded 1\n")
	_, pid, _ := strings.Cut(strings.SplitN(p.Logs("server"), "\n", 2)[0], " ")
	for _, command := range []struct {
		user string
		code int
		says string
	}{{"2000", 1, "reloaded 1\n"}, {"1000", 0, "reloaded 2\n"}, {"0", 0, "reloaded 3\n"}} {
		out, code := run(p, "sidecar", settings{Exec: []string{"/bin/sh", "-c", "kill -HUP " + pid}, User: command.user, Group: command.user})
		if code != command.code {
			t.Errorf("a command of user %s ends with %d: %s", command.user, code, out)
		}
		p.Sees("server", command.says)
	}
	p.Stop()
}

// The names of the shared objects.
const (
	ipcKey  = 0x6b75726d
	ipcName = "/kurma-e2e"
)

// ipc is every means by which two processes can communicate. The process that comes first makes the
// objects.
type ipc struct {
	memory, file             []byte // of System V and POSIX
	semaphores, queue, words uintptr
}

func openIPC() (*ipc, error) {
	id, err := unix.SysvShmGet(ipcKey, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return nil, fmt.Errorf("shmget: %w", err)
	}
	all := new(ipc)
	if all.memory, err = unix.SysvShmAttach(id, 0, 0); err != nil {
		return nil, fmt.Errorf("shmat: %w", err)
	}
	if all.semaphores, err = call(unix.SYS_SEMGET, ipcKey, 1, unix.IPC_CREAT|0o600); err != nil {
		return nil, fmt.Errorf("semget: %w", err)
	}
	if all.queue, err = call(unix.SYS_MSGGET, ipcKey, unix.IPC_CREAT|0o600, 0); err != nil {
		return nil, fmt.Errorf("msgget: %w", err)
	}
	name, err := unix.BytePtrFromString(ipcName[1:])
	if err != nil {
		return nil, err
	}
	if all.words, err = call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("mq_open: %w", err)
	}
	all.file, err = mapFile("/dev/shm" + ipcName)
	return all, err
}

// mapFile maps a file as shm_open(3) and mmap(2) do.
func mapFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(4096); err != nil {
		return nil, err
	}
	return unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// call makes a system call, and repeats it when a signal interrupts it. The fourth and further
// arguments are 0.
func call(number, a, b, c uintptr) (uintptr, error) {
	for {
		r, _, errno := unix.Syscall6(number, a, b, c, 0, 0, 0)
		if errno == 0 {
			return r, nil
		}
		if errno != unix.EINTR {
			return r, errno
		}
	}
}

// message is the structure of msgsnd(2).
type message struct {
	kind int64
	text [16]byte
}

// raise adds to the semaphore. Lowering it waits until it is above 0.
func (all *ipc) raise(by int16) error {
	operation := struct {
		number uint16
		by     int16
		flags  int16
	}{0, by, 0}
	if _, err := call(unix.SYS_SEMOP, all.semaphores, uintptr(unsafe.Pointer(&operation)), 1); err != nil {
		return fmt.Errorf("semop: %w", err)
	}
	return nil
}

// put writes a text, and its length before it.
func put(memory []byte, text string) { memory[8] = byte(copy(memory[9:], text)) }

func get(memory []byte) string { return string(memory[9 : 9+memory[8]]) }

// flag returns the word of the mapped file that represents a POSIX semaphore, see sem_init(3).
func (all *ipc) flag() *uint32 { return (*uint32)(unsafe.Pointer(&all.file[0])) }

// probeIPCOne sends by every means, and waits for a signal.
func probeIPCOne(out io.Writer) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	all, err := openIPC()
	if err != nil {
		return err
	}
	*(*uint32)(unsafe.Pointer(&all.memory[0])) = uint32(os.Getpid())
	put(all.memory, "memory, after its semaphore")
	if err := all.raise(1); err != nil {
		return err
	}
	text := message{1, [16]byte([]byte("message queue   "))}
	if _, err := call(unix.SYS_MSGSND, all.queue, uintptr(unsafe.Pointer(&text)), 13); err != nil {
		return fmt.Errorf("msgsnd: %w", err)
	}
	if _, err := call(unix.SYS_MQ_TIMEDSEND, all.words, uintptr(unsafe.Pointer(&text.text)), 13); err != nil {
		return fmt.Errorf("mq_send: %w", err)
	}
	put(all.file, "memory, after its semaphore")
	atomic.StoreUint32(all.flag(), 1)
	if _, err := call(unix.SYS_FUTEX, uintptr(unsafe.Pointer(all.flag())), futexWake, 1); err != nil {
		return fmt.Errorf("futex: %w", err)
	}
	_, err = fmt.Fprintln(out, "there is a signal:", <-signals)
	return err
}

// Of linux/futex.h, between processes.
const (
	futexWait = 0
	futexWake = 1
)

// probeIPCOther waits for everything that probeIPCOne sends, and signals it.
func probeIPCOther(out io.Writer) error {
	all, err := openIPC()
	if err != nil {
		return err
	}
	if err := all.raise(-1); err != nil {
		return err
	}
	memory := get(all.memory)
	var text message
	n, err := call(unix.SYS_MSGRCV, all.queue, uintptr(unsafe.Pointer(&text)), uintptr(len(text.text)))
	if err != nil {
		return fmt.Errorf("msgrcv: %w", err)
	}
	queue := text.text[:n]
	large := make([]byte, 8192) // the default of mq_msgsize
	if n, err = call(unix.SYS_MQ_TIMEDRECEIVE, all.words, uintptr(unsafe.Pointer(&large[0])), uintptr(len(large))); err != nil {
		return fmt.Errorf("mq_receive: %w", err)
	}
	for atomic.LoadUint32(all.flag()) == 0 {
		_, err := call(unix.SYS_FUTEX, uintptr(unsafe.Pointer(all.flag())), futexWait, 0)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("futex: %w", err)
		}
	}
	if _, err := fmt.Fprintf(out, "System V: %s\nSystem V: %s\nPOSIX: %s\nPOSIX: %s\n", memory, queue, large[:n], get(all.file)); err != nil {
		return err
	}
	one := int(*(*uint32)(unsafe.Pointer(&all.memory[0])))
	if err := unix.Kill(one, 0); err != nil {
		return fmt.Errorf("look for process %d of the other app: %w", one, err)
	}
	return unix.Kill(one, unix.SIGUSR1)
}
