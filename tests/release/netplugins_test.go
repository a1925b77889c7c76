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

// The key that signs the stager image signs the images of network plugins as well.
func TestNetworkPluginsAreSignedByTheKeyInTheAgent(t *testing.T) {
	t.Parallel()
	home, err := os.MkdirTemp("", "gpg") // a short path: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
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
		cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--quiet", "--passphrase", ""}, args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		return out
	}
	gpg("--quick-gen-key", "a test", "ed25519", "sign", "never")
	out := t.TempDir()
	key := filepath.Join(out, "key.asc")
	if err := os.WriteFile(key, gpg("--armor", "--export"), 0o600); err != nil {
		t.Fatal(err)
	}
	dry := exec.Command("make", "-C", "../..", "--dry-run", "aci", "VERSION=1", "GPG=a test")
	plan, err := dry.Output()
	if err != nil {
		t.Fatal(err)
	}
	command := ""
	for line := range strings.Lines(string(plan)) {
		if strings.Contains(line, "netplugins/build.sh") {
			command = strings.Replace(strings.TrimSpace(line), "build/out", `"$OUT"`, 1) + " lo"
		}
	}
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GNUPGHOME="+home, "OUT="+out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	verify := exec.Command("../../bin/aci", "verify", "--key", key, filepath.Join(out, "lo-netplugin.aci"))
	if text, err := verify.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// The images of all architectures have the same names: one of another architecture is not up to date.
func TestImagesOfNetworkPluginsAreOfTheArchitectureThatIsAskedFor(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	image := filepath.Join(out, "lo-netplugin.aci")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "ARCH="+runtime.GOARCH, "UNSIGNED=1")
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, args, err, text)
		}
		return string(text)
	}
	build := func() string {
		t.Helper()
		run("../../netplugins/build.sh", out, "1", "", "lo")
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
