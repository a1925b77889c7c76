// Package release tests the Debian packages of a release, made of the built programs and image.
//
// STAGER_BIN is the folder of the built programs, and STAGER_ACI the stager image, with its signature
// and key in the same folder; the defaults are the repository's own.
package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Settle()
	os.Exit(m.Run())
}

// built returns the files that a release has before its packages, in a new folder.
func built(t *testing.T, version string) string {
	t.Helper()
	bin, aci := os.Getenv("STAGER_BIN"), os.Getenv("STAGER_ACI")
	if bin == "" {
		bin = "../../bin"
	}
	if aci == "" {
		found, _ := filepath.Glob("../../build/out/" + names.Program + "-*.aci")
		aci = strings.Join(found, " ")
	}
	out := t.TempDir()
	platform := "-" + version + "-linux-" + runtime.GOARCH
	for from, to := range map[string]string{
		filepath.Join(bin, "launcher"): "launcher" + platform,
		filepath.Join(bin, "aci"):      "aci" + platform,
		aci:                            "stager" + platform + ".aci",
		aci + ".asc":                   "stager" + platform + ".aci.asc",
		aci + ".pub":                   "stager-key.asc",
		"../../LICENSE":                "licenses-" + version + ".tar.gz", // in the place of the release's
	} {
		// This process must not write what is executed: it may fork, for another test, a copy that has the file open.
		if text, err := exec.Command("cp", from, filepath.Join(out, to)).CombinedOutput(); err != nil {
			t.Fatalf("make aci first: %v\n%s", err, text)
		}
	}
	return out
}

// pack makes a package, in surroundings of its own, and returns its file.
func pack(t *testing.T, name, version string, surroundings ...string) string {
	t.Helper()
	out := built(t, version)
	cmd := exec.Command("sh", "-c", `umask "${TESTMASK:-022}" && exec ../../tools/release/debian/package.sh "$@"`, "pack", name, out, runtime.GOARCH)
	cmd.Env = append(append(os.Environ(), "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000"), surroundings...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	found, err := filepath.Glob(filepath.Join(out, name+"_*_"+runtime.GOARCH+".deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages %q, %v", found, err)
	}
	return found[0]
}

func TestPackagesAreReproducible(t *testing.T) {
	for _, name := range []string{"stager", "kurma-launcher"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, err := os.ReadFile(pack(t, name, "1.0.0"))
			if err != nil {
				t.Fatal(err)
			}
			other := pack(t, name, "1.0.0", "TESTMASK=077", "TZ=Pacific/Kiritimati", "LC_ALL=C.UTF-8", "TMPDIR="+t.TempDir(), "USER=other", "HOME=/nonexistent")
			if second, err := os.ReadFile(other); err != nil || !bytes.Equal(first, second) {
				t.Errorf("the package depends on its surroundings, %v", err)
			}
		})
	}
}

// machine is a fresh root with dpkg's records, and with busybox for the packages' scripts.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t, t.TempDir()}
	for _, dir := range []string{"bin", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "tmp"} {
		if err := os.MkdirAll(m.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.path("bin/busybox"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, applet := range []string{"sh", "grep", "find", "rm", "rmdir", "cut"} {
		if err := os.Symlink("busybox", m.path("bin/"+applet)); err != nil {
			t.Fatal(err)
		}
	}
	m.write("var/lib/dpkg/status", "")
	if err := os.Mkdir(m.path("dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(m.path("dev/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m machine) write(name, text string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.path(name)), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(m.path(name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) dpkg(args ...string) string {
	m.t.Helper()
	cmd := exec.Command("dpkg", append([]string{"--root=" + m.dir, "--force-confold", "--log=/dev/null"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("dpkg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// has checks which of the files there are.
func (m machine) has(want bool, files ...string) {
	m.t.Helper()
	for _, name := range files {
		if _, err := os.Lstat(m.path(name)); (err == nil) != want {
			left, _ := exec.Command("find", m.path(name), "-ls").CombinedOutput()
			m.t.Errorf("%s is there: %t, want %t\n%s", name, err == nil, want, left)
		}
	}
}

// run executes an installed program in the machine.
func (m machine) run(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("chroot", append([]string{m.dir}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestPackagesAreInstalledUpgradedRemovedAndPurged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root")
	}
	m := newMachine(t)
	launcher := []string{
		"usr/bin/launcher", "usr/bin/aci", "usr/lib/systemd/system/kurma-pod@.service", "usr/share/man/man1/launcher.1.gz", "usr/share/man/man1/aci.1.gz",
		"usr/share/man/man1/launcher-run.1.gz", "usr/share/bash-completion/completions/launcher", "usr/share/zsh/vendor-completions/_launcher",
		"usr/share/fish/vendor_completions.d/launcher.fish", "usr/share/doc/kurma-launcher/copyright", "usr/share/doc/kurma-launcher/licenses.tar.gz", "etc/kurma/pods",
	}
	stager := []string{"usr/share/kurma/stager.aci", "usr/share/kurma/stager.aci.asc", "usr/share/kurma/stager-key.asc", "usr/share/doc/stager/copyright", "usr/share/doc/stager/licenses.tar.gz"}
	const config = "etc/kurma/kurmad.json"

	m.dpkg("--install", pack(t, "stager", "1.0.0-rc1"), pack(t, "kurma-launcher", "1.0.0-rc1"))
	m.has(true, append(launcher, stager...)...)
	m.has(true, config)
	m.run("/usr/bin/aci", "verify", "--key", "/usr/share/kurma/stager-key.asc", "/usr/share/kurma/stager.aci")
	if out := m.run("/usr/bin/launcher", "image", "import", "/usr/share/kurma/stager.aci"); !strings.Contains(out, "sha512-") {
		t.Errorf("the import prints %q", out)
	}

	const mine = `{"parentCgroupName": "machine/kurma"}`
	m.write(config, mine)
	m.dpkg("--install", pack(t, "stager", "1.0.0"), pack(t, "kurma-launcher", "1.0.0")) // later than its release candidate
	if text, err := os.ReadFile(m.path(config)); err != nil || string(text) != mine {
		t.Errorf("the upgrade leaves the configuration %q, %v", text, err)
	}
	m.has(true, append(launcher, stager...)...)
	m.has(true, "var/lib/kurma/images")

	m.dpkg("--remove", "kurma-launcher", "stager")
	m.has(false, "usr/bin/launcher", "usr/lib/systemd/system/kurma-pod@.service", "usr/share/kurma")
	m.has(true, config, "var/lib/kurma/images")

	m.dpkg("--purge", "kurma-launcher", "stager")
	m.has(false, "etc/kurma", "var/lib/kurma", "usr/share/doc/kurma-launcher", "usr/share/doc/stager")
	if left := m.dpkg("--list"); strings.Contains(left, "kurma") {
		t.Errorf("dpkg still knows:\n%s", left)
	}
}
