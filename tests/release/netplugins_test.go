package release

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// makeACI executes the commands of make aci that make the stager image and two images of network plugins and sign them,
// and returns the files.
func makeACI(t *testing.T, out string, more ...string) []string {
	t.Helper()
	plan, err := exec.Command("make", append([]string{"-C", "../..", "--dry-run", "aci", "VERSION=1", "PLUGINS=lo sample", "OUT=" + out}, more...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(plan)) {
		if !strings.Contains(line, "--manifest") && !strings.Contains(line, "netplugins/build.sh") && !strings.Contains(line, "sign.sh") {
			continue
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = "../.."
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, text)
		}
	}
	found, err := filepath.Glob(filepath.Join(out, "*.aci"))
	if err != nil || len(found) != 3 {
		t.Fatalf("images %q, %v", found, err)
	}
	return found
}

// verify checks the images' signatures by a key.
func verify(t *testing.T, key string, images []string) {
	t.Helper()
	cmd := exec.Command("../../bin/aci", append([]string{"verify", "--key", key}, images...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// One throwaway key signs the stager image and the images of network plugins.
func TestOneThrowawayKeySignsAllImages(t *testing.T) {
	t.Parallel()
	images := makeACI(t, t.TempDir(), "KEY=", "GPG=")
	for _, image := range images {
		verify(t, image+".pub", images)
	}
}

// The key that signs the stager image signs the images of network plugins as well.
func TestNetworkPluginsAreSignedByTheKeyInTheAgent(t *testing.T) {
	home, err := os.MkdirTemp("", "gpg") // a short path: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GNUPGHOME", home)
	t.Cleanup(func() {
		stop := exec.Command("gpgconf", "--homedir", home, "--kill", "all")
		if err := stop.Run(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	gpg := func(args ...string) []byte {
		cmd := exec.Command("gpg", append([]string{"--batch", "--quiet", "--passphrase", ""}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		return out
	}
	gpg("--quick-gen-key", "a test", "ed25519", "sign", "never")
	key := filepath.Join(t.TempDir(), "key.asc")
	if err := os.WriteFile(key, gpg("--armor", "--export"), 0o600); err != nil {
		t.Fatal(err)
	}
	verify(t, key, makeACI(t, t.TempDir(), "KEY=", "GPG=a test"))
}

// The images of all architectures have the same names: one of another architecture is not up to date.
func TestImagesOfNetworkPluginsAreOfTheArchitectureThatIsAskedFor(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	image := filepath.Join(out, "lo-netplugin.aci")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "ARCH="+runtime.GOARCH)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, args, err, text)
		}
		return string(text)
	}
	build := func() string {
		t.Helper()
		run("../../netplugins/build.sh", out, "1", "lo")
		return run("../../bin/aci", "inspect", image)
	}
	first := build()
	newer := time.Now().Add(time.Hour).Truncate(time.Second) // than the sources
	age := func() {
		t.Helper()
		if err := os.Chtimes(image, newer, newer); err != nil {
			t.Fatal(err)
		}
	}
	age()
	build()
	if info, err := os.Stat(image); err != nil || !info.ModTime().Equal(newer) {
		t.Errorf("an image of the same architecture is built again: %v", err)
	}
	other := map[string]string{"amd64": "arm64"}[runtime.GOARCH]
	manifest := filepath.Join(t.TempDir(), "manifest.json")
	if err := os.WriteFile(manifest, []byte(run("../../bin/aci", "inspect", "--manifest", image)), 0o600); err != nil {
		t.Fatal(err)
	}
	run("../../bin/aci", "build", "--manifest", manifest, "--root", t.TempDir(), "--arch", cmp.Or(other, "amd64"), "-o", image)
	age()
	if got := build(); got != first {
		t.Errorf("in place of an image of another architecture there is\n%s, want\n%s", got, first)
	}
}
