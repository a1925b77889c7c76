package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kurma.io/stager/build"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/names"
	"kurma.io/stager/signing"
	"kurma.io/stager/tests/surroundings"
)

// asLauncher has the test binary be the launcher, re-executed monitors included.
const asLauncher = "LAUNCHER_UNDER_TEST"

// fakeStager is the program in testdata/fakestager, built once.
var fakeStager string

func TestMain(m *testing.M) {
	if os.Getenv(asLauncher) != "" {
		main()
	}
	surroundings.SettleAsRoot()
	os.Exit(withStager(m))
}

func withStager(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fakestager")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	fakeStager = filepath.Join(dir, "stager")
	cmd := exec.Command("go", "build", "-o", fakeStager, "./testdata/fakestager")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v\n%s", err, out))
	}
	return m.Run()
}

const (
	stagerName   = names.Image
	appManifest  = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/one","app":{"exec":["/x"],"user":"7","group":"8","workingDirectory":"/w","environment":[{"name":"A","value":"b"}],"mountPoints":[{"name":"file","path":"/f"},{"name":"gate","path":"/g"},{"name":"v","path":"/v"}]}}`
	baseManifest = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/base"}`
	stagerFormat = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"` + stagerName + `","app":{"exec":["` + names.Exec + `"],"user":"0","group":"0","environment":[{"name":"FROM","value":"image"}]},"annotations":[{"name":"` + names.LogDirAnnotation + `","value":"` + names.LogDir + `"}]%s}`
)

// host is a machine of a test's own: configuration, stores, keys and cgroups.
type host struct {
	t      *testing.T
	dir    string
	cgroup string
	key    *signing.Key
}

var hosts atomic.Int32

// newHost makes a host with a trusted stager image and an image of one app.
// When the test ends nothing may be left of it.
func newHost(t *testing.T) *host {
	t.Helper()
	h := bareHost(t)
	one := h.image("one.aci", appManifest)
	h.sign(one, h.key)
	h.run("image", "import", h.stagerImage("stager.aci", "", h.key), one)
	return h
}

func bareHost(t *testing.T) *host {
	h := &host{t: t, dir: t.TempDir(), cgroup: fmt.Sprintf("kurma-test-%d-%d", os.Getpid(), hosts.Add(1))}
	h.key = newKey(t)
	h.trust(h.key)
	t.Cleanup(func() {
		h.try("gc") // which deletes the ended pods
		h.checkClean()
	})
	return h
}

func newKey(t *testing.T) *signing.Key {
	t.Helper()
	key, err := signing.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// trust makes the key the only one that is trusted.
func (h *host) trust(key *signing.Key) {
	h.t.Helper()
	h.write("keys.asc", func(b *bytes.Buffer) error { return key.WritePublic(b) })
	config := fmt.Sprintf(`{"parentCgroupName":%q,"podsDirectory":"pods","imagesDirectory":"images","volumesDirectory":"volumes","trustDirectory":"trust","containerNetworksDirectory":"networks.d","trustedKeys":["keys.asc"]}`, h.cgroup)
	h.write("config.json", func(b *bytes.Buffer) error { _, err := b.WriteString(config); return err })
}

func (h *host) write(name string, content func(*bytes.Buffer) error) string {
	h.t.Helper()
	var buf bytes.Buffer
	if err := content(&buf); err != nil {
		h.t.Fatal(err)
	}
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *host) text(name, content string) string {
	return h.write(name, func(b *bytes.Buffer) error { _, err := b.WriteString(content); return err })
}

// image builds an unsigned image with one file.
func (h *host) image(name, manifest string) string {
	h.t.Helper()
	root := h.t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x"), []byte(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	entries, err := build.Tree(root, false)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.write(name, func(b *bytes.Buffer) error { return build.Write(b, []byte(manifest), entries) })
}

// stagerImage builds a stager image, signed unless key is nil; more is added to its manifest.
func (h *host) stagerImage(name, more string, key *signing.Key) string {
	h.t.Helper()
	return h.stagerImageOf(name, fmt.Sprintf(stagerFormat, more), key)
}

func (h *host) stagerImageOf(name, manifest string, key *signing.Key) string {
	h.t.Helper()
	added := h.t.TempDir()
	callIns := filepath.Join(added, names.CallInDir)
	if err := errors.Join(os.MkdirAll(callIns, 0o755), os.Symlink(names.Exec, filepath.Join(callIns, "extra")),
		os.Symlink("/nowhere", filepath.Join(callIns, "broken"))); err != nil {
		h.t.Fatal(err)
	}
	entries, err := build.StagerTree(fakeStager, added)
	if err != nil {
		h.t.Fatal(err)
	}
	path := h.write(name, func(b *bytes.Buffer) error { return build.Write(b, []byte(manifest), entries) })
	if key != nil {
		h.sign(path, key)
	}
	return path
}

func (h *host) sign(path string, key *signing.Key) {
	h.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	h.write(filepath.Base(path)+".asc", func(b *bytes.Buffer) error { return signing.Sign(b, file, key) })
}

// result is the output and the exit code of a run of the launcher.
type result struct {
	stdout, stderr string
	code           int
}

func (h *host) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"--config", filepath.Join(h.dir, "config.json")}, args...)...)
	// With -race every process would sleep for a second when it ends.
	cmd.Env = append(os.Environ(), asLauncher+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// try runs the launcher to its end.
func (h *host) try(args ...string) result { return h.finish(h.command(args...)) }

func (h *host) finish(cmd *exec.Cmd) result {
	h.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// run runs the launcher, which must succeed, and returns its stdout.
func (h *host) run(args ...string) string {
	h.t.Helper()
	r := h.try(args...)
	if r.code != 0 {
		h.t.Fatalf("launcher %s: exit status %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// refuse runs the launcher, which must fail with that status and one line
// that holds the words, and leave no pod.
func (h *host) refuse(code int, words string, args ...string) {
	h.t.Helper()
	r := h.try(args...)
	if r.code != code || !strings.Contains(r.stderr, words) || strings.Count(r.stderr, "\n") != 1 {
		h.t.Errorf("launcher %s: exit status %d, want %d; stderr %q, want one line with %q",
			strings.Join(args, " "), r.code, code, r.stderr, words)
	}
	h.checkNoPods()
}

// ps lists the pods.
func (h *host) ps() []daemon.PodInfo {
	h.t.Helper()
	return jsonLines[daemon.PodInfo](h.t, h.run("ps", "--all", "--json"))
}

// jsonLines reads one object a line.
func jsonLines[T any](t *testing.T, text string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(text) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// checkNoPods makes sure that no folder, cgroup or mount of a pod is there.
func (h *host) checkNoPods() {
	h.t.Helper()
	entries, _ := os.ReadDir(filepath.Join(h.dir, "pods"))
	for _, e := range entries {
		if e.Name() != ".lock" && e.Name() != ".events" {
			h.t.Errorf("left in pods: %s", e.Name())
		}
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + h.cgroup)
	more, _ := filepath.Glob("/sys/fs/cgroup/" + h.cgroup)
	for _, group := range append(left, more...) {
		h.t.Errorf("left: %s", group)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(h.dir)) {
		h.t.Errorf("left mounted on the host: %v\n%s", err, mounts)
	}
}

// checkClean is checkNoPods and no temporary folder among the images.
func (h *host) checkClean() {
	h.checkNoPods()
	left, _ := filepath.Glob(filepath.Join(h.dir, "images", ".tmp-*"))
	for _, dir := range left {
		h.t.Errorf("left: %s", dir)
	}
}
