package harness

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
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// Machine is a test's part of the host: its pods, cgroups and configuration. At the test's end its
// pods are stopped, and nothing may be left of them.
type Machine struct {
	T       *testing.T
	suite   *Suite
	Dir     string   // holds config.json, pods and tmp
	Pods    string   // the launcher's folder of pods
	Cgroup  string   // the parent of all pods' groups
	Store   string   // the image store
	Shared  bool     // the store is another one that tests share, and not this machine's
	Inside  []string // the words by which the launcher runs in a network namespace, network
	Network string
	Keys    []string // files of further trusted keys
	Images  []string // files to import, where the machine has a store of its own
	Config  map[string]any

	born       uint64            // when the machine was made, before its processes
	namespaces map[string]uint64 // of processes in the pods, and when they were last seen, see note
	layers     map[string]FileFacts
	unmount    []string // what the test itself has mounted, in that order
}

// Option changes a machine before it is used.
type Option func(*Machine)

// StagerConfig sets the stagerConfig of all pods in the machine, as JSON.
func StagerConfig(text string) Option {
	return func(b *Machine) { b.Config["defaultStagerConfig"] = json.RawMessage(text) }
}

// OwnStore makes an image store for the machine that contains only the stager.
func OwnStore() Option {
	return func(b *Machine) { b.Store = filepath.Join(b.Dir, "images") }
}

// NewMachine returns a machine for the test, with the suite's image store unless an option says otherwise.
func (s *Suite) NewMachine(t *testing.T, options ...Option) *Machine {
	t.Helper()
	b := &Machine{
		T: t, suite: s, Dir: t.TempDir(), Store: s.Store, Images: []string{s.StagerACI},
		born: now(), namespaces: make(map[string]uint64),
	}
	b.Pods = filepath.Join(b.Dir, "pods")
	b.Cgroup = fmt.Sprintf("kurma-e2e-%d-%d", os.Getpid(), s.machines.Add(1))
	b.Config = map[string]any{
		"parentCgroupName":   b.Cgroup,
		"defaultStagerImage": s.Stager.Name,
		"trustedKeys":        []string{s.StagerACI + ".pub"},
		// Not those of this machine's packages.
		"containerNetworksDirectory": filepath.Join(b.Dir, "networks.d"),
		"volumesDirectory":           filepath.Join(b.Dir, "named"),
	}
	for _, o := range options {
		o(b)
	}
	b.Config["podsDirectory"], b.Config["imagesDirectory"] = b.Pods, b.Store
	b.Write("config.json", b.Config)
	if err := os.Mkdir(filepath.Join(b.Dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if b.Store != s.Store && !b.Shared {
		b.Must(append([]string{"image", "import"}, b.Images...)...)
	}
	b.layers = b.snapshotLayers()
	t.Cleanup(b.close)
	return b
}

// Write writes a value as JSON, or text as it is, and returns the file's path.
func (b *Machine) Write(name string, value any) string {
	b.T.Helper()
	text, ok := value.(string)
	if !ok {
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			b.T.Fatal(err)
		}
		text = string(data)
	}
	path := filepath.Join(b.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.T.Fatal(err)
	}
	return path
}

// Folder makes a folder of the machine and returns its path.
func (b *Machine) Folder(name string, mode os.FileMode) string {
	b.T.Helper()
	path := filepath.Join(b.Dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		b.T.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		b.T.Fatal(err)
	}
	return path
}

// MountTmpfs mounts a tmpfs, which is unmounted at the test's end.
func (b *Machine) MountTmpfs(dir, options string) {
	b.T.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		b.T.Fatal(err)
	}
	// The unmount comes after the pods are gone, and before the machine looks for mounts that are left.
	b.unmount = append(b.unmount, dir)
}

// Result is the output and exit status of a program.
type Result struct {
	Stdout, Stderr string
	Code           int // -1 when a signal ended it
}

// Command returns a command of the launcher, not started yet.
func (b *Machine) Command(args ...string) *exec.Cmd {
	args = append([]string{"--config", filepath.Join(b.Dir, "config.json"), "--state", b.Dir}, args...)
	argv := slices.Concat(b.Inside, []string{b.suite.Launcher}, args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(b.Dir, "tmp"))
	return cmd
}

// Launcher runs the launcher to its end.
func (b *Machine) Launcher(args ...string) Result {
	b.T.Helper()
	return Finish(b.T, b.Command(args...))
}

// Must runs the launcher, which must succeed, and returns its stdout.
func (b *Machine) Must(args ...string) string {
	b.T.Helper()
	r := b.Launcher(args...)
	if r.Code != 0 {
		b.T.Fatalf("launcher %s: exit status %d\n%s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Finish runs a command to its end, and fails if the end does not come within patience.
func Finish(t *testing.T, cmd *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(Patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%s hangs\n%s%s", strings.Join(cmd.Args, " "), stdout.String(), stderr.String())
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// RunAll runs programs of other projects, one after the other.
func RunAll(t *testing.T, commands ...[]string) {
	t.Helper()
	for _, args := range commands {
		if r := Finish(t, exec.Command(args[0], args[1:]...)); r.Code != 0 {
			t.Fatalf("%s: %+v", strings.Join(args, " "), r)
		}
	}
}

// Eventually is surroundings.Eventually, which ends the test if it fails.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !surroundings.Eventually(t, what, condition) {
		t.FailNow()
	}
}
