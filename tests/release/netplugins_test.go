package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
