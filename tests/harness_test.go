// Package tests tests the built launcher and the signed stager image end to end, as root, with real
// pods of real programs.
//
// STAGER_BIN is the folder of the built programs. STAGER_ACI is the stager image, with its signature
// and key in the same folder. STAGER_IMAGES is the folder that tests/images/build.sh has filled. The
// defaults are the repository's own.
package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/surroundings"
)

// patience limits every wait: a longer wait means that something hangs.
const patience = surroundings.Patience

// suite is what all tests share. After TestMain only machines changes.
var suite struct {
	launcher  string            // the program
	stagerACI string            // the signed stager image
	stager    daemon.Image      // the same, unpacked
	images    string            // the folder of built images
	store     string            // the image store, with the stager and all of the images imported
	ids       map[string]string // image IDs by short name: "busybox", "nats", "redis", "nginx"
	machines  atomic.Int32
}

func TestMain(m *testing.M) {
	if plan := os.Getenv(daemonPlanVariable); plan != "" {
		fmt.Fprintln(os.Stderr, "become stager:", becomeStager(plan))
		os.Exit(99)
	}
	beProbe()
	if len(os.Args) > 1 && os.Args[1] == "enter-pod" {
		fmt.Fprintln(os.Stderr, "enter pod:", enterPod(os.Args[2], os.Args[3:]))
		os.Exit(99)
	}
	surroundings.Settle()
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "end-to-end tests:", err)
		code = 1
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("they need root")
	}
	if err := findBuilt(); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "kurma-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	suite.store = filepath.Join(dir, "images")
	if err := importImages(dir); err != nil {
		return 1, err
	}
	if suite.stager, err = unpackStager(dir); err != nil {
		return 1, err
	}
	before, err := snapshot(suite.store, true)
	if err != nil {
		return 1, err
	}
	code = m.Run()
	after, err := snapshot(suite.store, true)
	if err != nil {
		return 1, err
	}
	if changes := compare(before, after); len(changes) > 0 {
		return 1, fmt.Errorf("image store changed:\n%s", strings.Join(changes, "\n"))
	}
	return code, nil
}

func findBuilt() error {
	bin, aci, images := os.Getenv("STAGER_BIN"), os.Getenv("STAGER_ACI"), os.Getenv("STAGER_IMAGES")
	if bin == "" {
		bin = "../bin"
	}
	if aci == "" {
		found, _ := filepath.Glob("../build/out/" + names.Program + "-*.aci")
		aci = strings.Join(found, " ")
	}
	if images == "" {
		images = "../build/out/images"
	}
	paths := []*string{&suite.launcher, &suite.stagerACI, &suite.images}
	for i, path := range []string{filepath.Join(bin, "launcher"), aci, images} {
		abs, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(abs); err != nil {
			return fmt.Errorf("make bin/launcher aci images first: %w", err)
		}
		*paths[i] = abs
	}
	return nil
}

// importImages imports the images that tests start into the suite's store.
func importImages(dir string) error {
	suite.ids = make(map[string]string)
	files := []string{suite.stagerACI}
	for _, name := range []string{"busybox", "nats", "redis", "nginx"} {
		id, err := os.ReadFile(filepath.Join(suite.images, name+".id"))
		if err != nil {
			return err
		}
		suite.ids[name] = strings.TrimSpace(string(id))
		files = append(files, filepath.Join(suite.images, name+".aci"))
	}
	config := filepath.Join(dir, "config.json")
	text := fmt.Sprintf(`{"imagesDirectory": %q}`, suite.store)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	args := append([]string{"--config", config, "--state", dir, "image", "import"}, files...)
	out, err := exec.Command(suite.launcher, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	return nil
}

// unpackStager unpacks the stager for tests that start it without the launcher. It does not use the
// store, which must not change: a hard link changes a file's ctime.
func unpackStager(dir string) (daemon.Image, error) {
	dir = filepath.Join(dir, "stager")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return daemon.Image{}, err
	}
	return daemon.Unpack(suite.launcher, suite.stagerACI, dir)
}

// machine is a test's part of the host: its pods, cgroups and configuration. At the test's end its
// pods are stopped, and nothing may be left of them.
type machine struct {
	t       *testing.T
	dir     string   // holds config.json, pods and tmp
	pods    string   // the launcher's folder of pods
	cgroup  string   // the parent of all pods' groups
	store   string   // the image store
	shared  bool     // the store is another one that tests share, and not this machine's
	inside  []string // the words by which the launcher runs in a network namespace, network
	network string
	keys    []string // files of further trusted keys
	images  []string // files to import, where the machine has a store of its own
	config  map[string]any

	born       uint64            // when the machine was made, before its processes
	namespaces map[string]uint64 // of processes in the pods, and when they were last seen, see note
	layers     map[string]fileFacts
	unmount    []string // what the test itself has mounted, in that order
}

// option changes a machine before it is used.
type option func(*machine)

// stagerConfig sets the stagerConfig of all pods in the machine, as JSON.
func stagerConfig(text string) option {
	return func(b *machine) { b.config["defaultStagerConfig"] = json.RawMessage(text) }
}

// ownStore makes an image store for the machine that contains only the stager.
func ownStore() option {
	return func(b *machine) { b.store = filepath.Join(b.dir, "images") }
}

func newMachine(t *testing.T, options ...option) *machine {
	t.Helper()
	b := &machine{t: t, dir: t.TempDir(), store: suite.store, images: []string{suite.stagerACI}, born: now(), namespaces: make(map[string]uint64)}
	b.pods = filepath.Join(b.dir, "pods")
	b.cgroup = fmt.Sprintf("kurma-e2e-%d-%d", os.Getpid(), suite.machines.Add(1))
	b.config = map[string]any{
		"parentCgroupName":   b.cgroup,
		"defaultStagerImage": suite.stager.Name,
		"trustedKeys":        []string{suite.stagerACI + ".pub"},
	}
	for _, o := range options {
		o(b)
	}
	b.config["podsDirectory"], b.config["imagesDirectory"] = b.pods, b.store
	b.write("config.json", b.config)
	if err := os.Mkdir(filepath.Join(b.dir, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if b.store != suite.store && !b.shared {
		b.must(append([]string{"image", "import"}, b.images...)...)
	}
	b.layers = b.snapshotLayers()
	t.Cleanup(b.close)
	return b
}

// write writes a value as JSON, or text as it is, and returns the file's path.
func (b *machine) write(name string, value any) string {
	b.t.Helper()
	text, ok := value.(string)
	if !ok {
		data, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			b.t.Fatal(err)
		}
		text = string(data)
	}
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// folder makes a folder of the machine and returns its path.
func (b *machine) folder(name string, mode os.FileMode) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.Mkdir(path, 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// result is the output and exit status of a program.
type result struct {
	stdout, stderr string
	code           int // -1 when a signal ended it
}

// command returns a command of the launcher, not started yet.
func (b *machine) command(args ...string) *exec.Cmd {
	args = append([]string{"--config", filepath.Join(b.dir, "config.json"), "--state", b.dir}, args...)
	argv := slices.Concat(b.inside, []string{suite.launcher}, args)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(b.dir, "tmp"))
	return cmd
}

// unsigned is the launcher's warning of an image that nobody has signed, as the suite's images are.
var unsigned = regexp.MustCompile(`(?m)^launcher: warning: image .* is not signed\n`)

// launcher runs the launcher to its end. The result is without the warnings of the suite's images.
func (b *machine) launcher(args ...string) result {
	b.t.Helper()
	r := finish(b.t, b.command(args...))
	r.stderr = unsigned.ReplaceAllString(r.stderr, "")
	return r
}

// must runs the launcher, which must succeed, and returns its stdout.
func (b *machine) must(args ...string) string {
	b.t.Helper()
	r := b.launcher(args...)
	if r.code != 0 {
		b.t.Fatalf("launcher %s: exit status %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// finish runs a command to its end, and fails if the end does not come within patience.
func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !late.Stop() {
		t.Fatalf("%s hangs\n%s%s", strings.Join(cmd.Args, " "), stdout.String(), stderr.String())
	}
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), withoutUnsigned(stderr.String()), cmd.ProcessState.ExitCode()}
}

// withoutUnsigned removes the launcher's warnings that an image is not signed: the tests' images are
// not. The launcher's own tests check these warnings.
func withoutUnsigned(stderr string) string {
	return regexp.MustCompile(`(?m)^launcher: warning: image \S+ \(sha512-[0-9a-f]+\) is not signed\n`).ReplaceAllString(stderr, "")
}

// eventually is surroundings.Eventually, which ends the test if it fails.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	if !surroundings.Eventually(t, what, condition) {
		t.FailNow()
	}
}
