// Package harness is what the end-to-end tests of both houses share, the stager's in tests and the launcher's in
// launcher/tests: the built programs and images (Suite), a test's part of the host (Machine), its pods (Pod), and a
// stager that is started without the launcher (Direct). The tests run as root, with real pods of real programs.
//
// STAGER_BIN is the folder of the built programs. STAGER_ACI is the stager image, with its signature
// and key in the same folder. STAGER_IMAGES is the folder that tests/images/build.sh has filled. The
// defaults are the repository's own.
package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/daemon"
	"kurma.io/stager/tests/surroundings"
)

// Patience limits every wait: a longer wait means that something hangs.
var Patience = surroundings.Patience //nolint:gochecknoglobals // as in surroundings

// Suite is what all tests of a package share. run fills it, and the tests only read it.
type Suite struct {
	Launcher  string            // the program
	StagerACI string            // the signed stager image
	Stager    daemon.Image      // the same, unpacked
	Images    string            // the folder of built images
	Store     string            // the image store, with the stager and all of the images imported
	IDs       map[string]string // image IDs by short name: "busybox", "nats", "redis", "nginx"
	machines  atomic.Int32
}

// Probe is a program that an app of a test executes, see testProgram.
type Probe func(out io.Writer) error

// Main is the TestMain of a package: it fills the suite, runs the package's tests, checks that the image store
// stayed as it was, and exits. The test program also plays the parts of other programs: it becomes a stager,
// enters a pod, or is one of the probes.
func (s *Suite) Main(m *testing.M, probes map[string]Probe) {
	if plan := os.Getenv(daemonPlanVariable); plan != "" {
		fmt.Fprintln(os.Stderr, "become stager:", becomeStager(plan))
		os.Exit(99)
	}
	beProbe(probes)
	if len(os.Args) > 1 && os.Args[1] == "enter-pod" {
		fmt.Fprintln(os.Stderr, "enter pod:", enterPod(os.Args[2], os.Args[3:]))
		os.Exit(99)
	}
	surroundings.SettleWithBuilt()
	code, err := s.run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "end-to-end tests:", err)
		code = 1
	}
	os.Exit(code)
}

// beProbe makes this process a probe, if its arguments say so.
func beProbe(probes map[string]Probe) {
	if len(os.Args) != 2 {
		return
	}
	probe, ok := probes[os.Args[1]]
	if !ok {
		return
	}
	if err := probe(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (s *Suite) run(m *testing.M) (code int, err error) {
	if err := s.findBuilt(); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "kurma-e2e-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.Store = filepath.Join(dir, "images")
	if err := s.importImages(dir); err != nil {
		return 1, err
	}
	if s.Stager, err = s.unpackStager(dir); err != nil {
		return 1, err
	}
	before, err := snapshot(s.Store, true)
	if err != nil {
		return 1, err
	}
	code = m.Run()
	after, err := snapshot(s.Store, true)
	if err != nil {
		return 1, err
	}
	if changes := Compare(before, after); len(changes) > 0 {
		return 1, fmt.Errorf("image store changed:\n%s", strings.Join(changes, "\n"))
	}
	return code, nil
}

// findBuilt finds the built programs and images: by their variables, or in the repository that has the working
// directory, a test's package.
func (s *Suite) findBuilt() error {
	top, err := repository()
	if err != nil {
		return err
	}
	bin, aci, images := os.Getenv("STAGER_BIN"), os.Getenv("STAGER_ACI"), os.Getenv("STAGER_IMAGES")
	if bin == "" {
		bin = filepath.Join(top, "bin")
	}
	if aci == "" {
		found, _ := filepath.Glob(filepath.Join(top, "build/out", names.Program+"-*.aci"))
		aci = strings.Join(found, " ")
	}
	if images == "" {
		images = filepath.Join(top, "build/out/images")
	}
	paths := []*string{&s.Launcher, &s.StagerACI, &s.Images}
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

// repository returns the folder above the working directory that has the stager image's manifest.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "aci-manifest.json")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no folder above the working directory has aci-manifest.json")
}

// importImages imports the images that tests start into the suite's store.
func (s *Suite) importImages(dir string) error {
	s.IDs = make(map[string]string)
	files := []string{s.StagerACI}
	for _, name := range []string{"busybox", "nats", "redis", "nginx"} {
		id, err := os.ReadFile(filepath.Join(s.Images, name+".id"))
		if err != nil {
			return err
		}
		s.IDs[name] = strings.TrimSpace(string(id))
		files = append(files, filepath.Join(s.Images, name+".aci"))
	}
	config := filepath.Join(dir, "config.json")
	text := fmt.Sprintf(`{"imagesDirectory": %q}`, s.Store)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	args := append([]string{"--config", config, "--state", dir, "image", "import"}, files...)
	out, err := exec.Command(s.Launcher, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import images: %w: %s", err, out)
	}
	return nil
}

// unpackStager unpacks the stager for tests that start it without the launcher. It does not use the
// store, which must not change: a hard link changes a file's ctime.
func (s *Suite) unpackStager(dir string) (daemon.Image, error) {
	dir = filepath.Join(dir, "stager")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return daemon.Image{}, err
	}
	return daemon.Unpack(s.Launcher, s.StagerACI, dir)
}
