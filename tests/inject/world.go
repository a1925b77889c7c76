package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/poll"
)

// built are the programs and images that are tested.
type built struct {
	Bin    string // the folder of the programs
	ACI    string // the stager image, with its key beside it
	Images string // the folder of images
	Busy   string // the ID of the image busybox
	Client string // the program that makes calls of the CRI
	Driver string // the network driver netplugins/remote/testdriver
}

// world is a machine of its own: a folder, namespaces and a cgroup.
type world struct {
	built
	dir         string
	cgroup      string
	small       string // the ID of the small image
	fingerprint string // of the key in keyFile

	sandbox   string          // the ID that the last call of RunPodSandbox has answered
	container string          // and CreateContainer
	serverEnd <-chan struct{} // closed when the server has ended; nil before its start

	networked bool // setUpNetworks was called

	foreign  map[string]string // the mounts with which the world begins, see mounts
	limit    time.Duration     // of a step
	injector *injector
	record   bytes.Buffer // the steps of a round
	hung     string       // the step that took longer than the limit, "" for none
}

// result is how a program has ended.
type result struct {
	code           int // 128 + N for signal N
	stdout, stderr string
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// setUp fills the world's folder.
func (w *world) setUp() error {
	w.foreign = mountsByID()
	for _, dir := range []string{"tmp", "home", "out"} {
		if err := os.Mkdir(w.path(dir), 0o700); err != nil {
			return err
		}
	}
	config := map[string]any{
		"parentCgroupName": w.cgroup, "defaultStagerImage": names.Image,
		"trustedKeys": w.trusted(), "trustDirectory": w.path("trust"),
		"podsDirectory": w.path("pods"), "imagesDirectory": w.path("images"), "cacheDirectory": w.path("cache"),
		"networksDirectory": w.path("networks"), "containerNetworksDirectory": w.path("networks.d"),
		"defaultStagerConfig": map[string]any{"gracePeriod": "2s"},
		"container_networks":  networkEntries(),
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path("config.json"), text, 0o600); err != nil {
		return err
	}
	image, err := newImage()
	if err != nil {
		return err
	}
	if err := errors.Join(w.make(), w.writeLayout(image), w.writeArchive(image), serveRegistry(image)); err != nil {
		return err
	}
	r := w.launcher("image", "import", w.ACI, filepath.Join(w.Images, "busybox.aci"), smallFile)
	if r.code != 0 {
		return fmt.Errorf("import images: %s", r.stderr)
	}
	w.small = lastLine(r.stdout)
	return nil
}

// setUpFor makes what an operation needs beside, unless an earlier one has had it made.
func (w *world) setUpFor(op operation) error {
	if name, _, _ := strings.Cut(op.name, "-"); slices.Contains([]string{"net", "lo", "sample", "remote"}, name) && !w.networked {
		w.networked = true
		return w.setUpNetworks()
	}
	if op.cri() && w.serverEnd == nil {
		return w.setUpServer()
	}
	return nil
}

// smallManifest is the manifest of the small image.
const smallManifest = `{"acKind": "ImageManifest", "acVersion": "0.8.11", "name": "example.com/small",
	"labels": [{"name": "version", "value": "1"}]}`

// make makes the small image and the key.
func (w *world) make() error {
	root := w.path("small")
	err := errors.Join(
		os.MkdirAll(filepath.Join(root, "folder"), 0o755), os.WriteFile(filepath.Join(root, "folder/file"), []byte("text"), 0o640),
		os.Link(filepath.Join(root, "folder/file"), filepath.Join(root, "linked")), os.Symlink("folder", filepath.Join(root, "link")),
		os.WriteFile(w.path("small.json"), []byte(smallManifest), 0o600),
	)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"build", "--manifest", "small.json", "--root", "small", "-o", smallFile},
		{"key", "--new", "example", "-o", "key"},
		{"key", "--public", "key", "-o", keyFile},
	} {
		r := w.run(false, append([]string{filepath.Join(w.Bin, "aci")}, args...)...)
		if r.code != 0 {
			return fmt.Errorf("aci %s: %s", args[0], r.stderr)
		}
		if args[0] == "key" && w.fingerprint == "" {
			w.fingerprint = lastLine(r.stdout)
		}
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// launcher runs a command of the launcher without a filter, or makes a call of the CRI.
func (w *world) launcher(args ...string) result {
	switch args[0] {
	case criWord:
		return w.call(args[1], args[2])
	case awaitWord:
		return w.await()
	}
	return w.run(false, w.argv(args...)...)
}

// injected is launcher under a filter.
func (w *world) injected(args ...string) result {
	if args[0] == criWord || args[0] == awaitWord {
		return w.launcher(args...) // the server has the filter
	}
	return w.run(true, w.argv(args...)...)
}

// await waits until the app of the pod, or of the container, has written its line.
func (w *world) await() result {
	if !poll.Until(w.limit, 100*time.Millisecond, func() bool {
		return w.criLog() == "" || strings.Contains(w.launcher("logs", "p").stdout, "hello")
	}) {
		return result{code: 1, stderr: "the app writes nothing"}
	}
	return result{}
}

func (w *world) argv(args ...string) []string {
	return append([]string{filepath.Join(w.Bin, "launcher"), "--config", w.path("config.json"), "--state", w.dir}, w.words(args)...)
}

// run runs a program to its end, or kills it at the limit. Its output goes to files: who has them open may outlive it.
func (w *world) run(filtered bool, argv ...string) result {
	stdout, outErr := os.CreateTemp(w.path("out"), "")
	stderr, errErr := os.CreateTemp(w.path("out"), "")
	if err := errors.Join(outErr, errErr); err != nil {
		return result{code: -1, stderr: err.Error()}
	}
	defer func() {
		for _, f := range []*os.File{stdout, stderr} {
			_, _ = f.Close(), os.Remove(f.Name())
		}
	}()
	cmd := exec.Command(argv[0], argv[1:]...)
	if filtered {
		cmd = self(stageEnter, argv...)
	}
	cmd.Env = append(cmd.Environ(), "TMPDIR="+w.path("tmp"), "HOME="+w.path("home"))
	cmd.Stdout, cmd.Stderr, cmd.Dir = stdout, stderr, w.dir
	err := w.start(cmd, filtered)
	if err == nil {
		err = w.wait(cmd)
	}
	r := result{code: -1}
	if exit := (*exec.ExitError)(nil); err == nil || errors.As(err, &exit) {
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if r.code = status.ExitStatus(); status.Signaled() {
			r.code = 128 + int(status.Signal())
		}
	} else {
		r.stderr = err.Error()
	}
	out, _ := os.ReadFile(stdout.Name())
	words, _ := os.ReadFile(stderr.Name())
	r.stdout, r.stderr = string(out), r.stderr+string(words)
	fmt.Fprintf(&w.record, "$ %s\n%s%s→ %d\n", strings.Join(argv[1:], " "), r.stdout, r.stderr, r.code)
	return r
}

// start starts a command, and answers the notifications of its filter.
func (w *world) start(cmd *exec.Cmd, filtered bool) error {
	if !filtered {
		return cmd.Start()
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	defer func() { _ = unix.Close(pair[0]) }()
	other := os.NewFile(uintptr(pair[1]), "listener's socket")
	cmd.ExtraFiles = []*os.File{other}
	err = errors.Join(cmd.Start(), other.Close())
	if err != nil {
		return err
	}
	listener, err := takeListener(pair[0])
	if err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	go serve(listener, w.injector.decide)
	return nil
}

// wait waits for a program. At the limit SIGQUIT has a Go program write what it does, and SIGKILL ends it.
func (w *world) wait(cmd *exec.Cmd) error {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for _, signal := range []os.Signal{unix.SIGQUIT, unix.SIGKILL} {
		limit := w.limit
		if signal == unix.SIGKILL {
			limit = 5 * time.Second
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(limit):
			if w.hung == "" {
				w.hung = strings.Join(cmd.Args[1:], " ")
			}
			_ = cmd.Process.Signal(signal)
		}
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(5 * time.Second):
		return errors.New("the program survives SIGKILL")
	}
}
