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
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.SettleWithBuilt()
	os.Exit(m.Run())
}

// dist makes a release of what has been built, with its packages, in a new folder.
func dist(t *testing.T, version string) string {
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
	cmd := exec.Command("./dist.sh", bin, aci, out)
	cmd.Env = append(os.Environ(), "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make aci first: %v\n%s", err, text)
	}
	return out
}

// packages are the packages of a release, in the order in which they can be installed.
func packages() []string {
	return []string{"stager", "kurma-launcher", "kurma-netplugins", "kurma-cri"}
}

// debs are the files of the packages in a release.
func debs(t *testing.T, out string) []string {
	t.Helper()
	var all []string
	for _, name := range packages() {
		found, err := filepath.Glob(filepath.Join(out, name+"_*_"+runtime.GOARCH+".deb"))
		if err != nil || len(found) != 1 {
			t.Fatalf("packages %q, %v", found, err)
		}
		all = append(all, found[0])
	}
	return all
}

func TestPackagesAreReproducible(t *testing.T) {
	t.Parallel()
	out := dist(t, "1.0.0")
	for i, deb := range debs(t, out) {
		first, err := os.ReadFile(deb)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", `umask 077 && exec ../../tools/release/debian/package.sh "$@"`, "pack", packages()[i], out, runtime.GOARCH)
		cmd.Env = append(os.Environ(), "VERSION=1.0.0", "SOURCE_DATE_EPOCH=1700000000",
			"TZ=Pacific/Kiritimati", "LC_ALL=C.UTF-8", "TMPDIR="+t.TempDir(), "USER=other", "HOME=/nonexistent")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if second, err := os.ReadFile(deb); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s depends on its surroundings, %v", deb, err)
		}
	}
}

// make release ends with what it has made: files with sizes, the key, and commands that install the packages.
func TestTheReleaseIsSummed(t *testing.T) {
	t.Parallel()
	out := dist(t, "1.0.0")
	text, err := exec.Command("../../tools/release/summary.sh", out).Output()
	if err != nil {
		t.Fatal(err)
	}
	summary := string(text)
	verified, err := exec.Command("../../bin/aci", "verify", "--key", filepath.Join(out, "stager-key.asc"), filepath.Join(out, "SHA512SUMS")).Output()
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields(string(verified))
	for _, want := range []string{"MiB cni-netplugin-1.0.0-linux-", "B SHA512SUMS\n", "Signed by the key " + words[len(words)-1] + " ", "--fingerprint " + words[len(words)-1] + " "} {
		if !strings.Contains(summary, want) {
			t.Errorf("no %q in\n%s", want, summary)
		}
	}
	_, next, _ := strings.Cut(summary, "  cd ")
	next, _, _ = strings.Cut(next, "\n")
	m := newMachine(t)
	if text, err := exec.Command("sh", "-c", "cd "+strings.Replace(next, "dpkg ", "dpkg --log=/dev/null --root="+m.dir+" ", 1)).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", next, err, text)
	}
	m.has(true, "usr/bin/launcher", "usr/share/kurma/stager.aci", "usr/share/kurma/cni-netplugin.aci")
}

// The packages' documents have links that lead somewhere, and each copyright file has the licences of what its package contains.
func TestPackagedDocumentsAreWhole(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for i, deb := range debs(t, dist(t, "1.0.0")) {
		if text, err := exec.Command("dpkg-deb", "-x", deb, root).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		name := filepath.Join(root, "usr/share/doc", packages()[i], "copyright")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"libseccomp", "glibc", "libgcc", "std"} {
			if want := "==== " + part + "@1: LICENSE\n\nthe licence of " + part + "\n"; !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q", name, want)
			}
		}
	}
	documents, err := filepath.Glob(filepath.Join(root, "usr/share/doc/*/*.md"))
	if err != nil || len(documents) < 8 {
		t.Fatalf("documents %q, %v", documents, err)
	}
	links := 0
	for _, name := range documents {
		links += followLinks(t, name)
	}
	if links < 10 {
		t.Errorf("%d links between documents", links)
	}
}

// followLinks checks the relative links of a document, also to headings, and counts them.
func followLinks(t *testing.T, name string) (followed int) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`).FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(link[1], "https://") || strings.HasPrefix(link[1], "http://") {
			continue
		}
		to := name
		if link[1] != "" {
			to = filepath.Join(filepath.Dir(name), link[1])
		}
		text, err := os.ReadFile(to)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
			continue
		}
		if anchor := strings.TrimPrefix(link[2], "#"); anchor != "" && !slices.Contains(anchors(string(text)), anchor) {
			t.Errorf("%s: %s has no heading #%s", filepath.Base(name), filepath.Base(to), anchor)
		}
		followed++
	}
	return followed
}

// anchors returns the anchors of a document's headings, which are not its comments in code.
func anchors(text string) (all []string) {
	text = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		words := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(words, " ", "-"))
	}
	return all
}

func TestAnchorsOfHeadings(t *testing.T) {
	got := anchors("# A first pod\n```sh\n# no heading\n```\ntext # here\n## `cni-netplugin`: CNI's plugins\n")
	if want := []string{"a-first-pod", "cni-netplugin-cnis-plugins"}; !slices.Equal(got, want) {
		t.Errorf("anchors %q, want %q", got, want)
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
	m := newMachine(t)
	launcher := []string{
		"usr/bin/launcher", "usr/bin/aci", "usr/lib/systemd/system/kurma-pod@.service", "usr/lib/ocf/resource.d/kurma/pod", "usr/share/man/man1/launcher.1.gz", "usr/share/man/man1/aci.1.gz",
		"usr/share/man/man1/launcher-run.1.gz", "usr/share/bash-completion/completions/launcher", "usr/share/zsh/vendor-completions/_launcher",
		"usr/share/fish/vendor_completions.d/launcher.fish", "usr/share/doc/kurma-launcher/copyright", "etc/kurma/pods",
	}
	stager := []string{"usr/share/kurma/stager.aci", "usr/share/kurma/stager.aci.asc", "usr/share/kurma/stager-key.asc", "usr/share/doc/stager/copyright"}
	netplugins := []string{"usr/share/kurma/cni-netplugin.aci", "usr/share/kurma/cni-netplugin.aci.asc", "usr/share/kurma/networks.d/kurma.json", "usr/share/doc/kurma-netplugins/networks.md"}
	cri := []string{
		"usr/bin/kurma-cri", "usr/lib/systemd/system/kurma-cri.service", "usr/lib/systemd/system/kurma-cri.socket",
		"etc/kurma/kurma-cri.json", "usr/share/doc/kurma-cri/kubernetes.md", "usr/share/doc/kurma-cri/copyright",
		"usr/share/doc/kurma-cri/one-machine.md", "usr/share/doc/kurma-cri/examples/kubelet.yaml", "usr/share/doc/kurma-cri/examples/kubelet.service",
	}
	const config = "etc/kurma/kurmad.json"

	m.dpkg(append([]string{"--install"}, debs(t, dist(t, "1.0.0-rc1"))...)...)
	m.has(true, slices.Concat(launcher, stager, netplugins, cri)...)
	m.has(true, config)
	m.run("/usr/bin/aci", "verify", "--key", "/usr/share/kurma/stager-key.asc", "/usr/share/kurma/stager.aci", "/usr/share/kurma/cni-netplugin.aci")
	if out := m.run("/usr/bin/launcher", "network", "list"); !strings.Contains(out, "kurma  file:///usr/share/kurma/cni-netplugin.aci  eth{{num}}  yes") {
		t.Errorf("the networks are %q", out)
	}
	if out := m.run("/usr/bin/launcher", "image", "import", "/usr/share/kurma/stager.aci"); !strings.Contains(out, "sha512-") {
		t.Errorf("the import prints %q", out)
	}
	// The packaged configuration is read before the socket is called.
	out, err := exec.Command("chroot", m.dir, "/usr/bin/kurma-cri", "status").CombinedOutput()
	if err == nil || !strings.HasPrefix(string(out), "kurma-cri: ask server: ") {
		t.Errorf("the status without a server is %q, %v", out, err)
	}
	m.write("var/lib/kurma-cri/images/sha512-0/manifest", "{}")

	const mine = `{"parentCgroupName": "machine/kurma"}`
	m.write(config, mine)
	m.dpkg(append([]string{"--install"}, debs(t, dist(t, "1.0.0"))...)...) // later than its release candidate
	if text, err := os.ReadFile(m.path(config)); err != nil || string(text) != mine {
		t.Errorf("the upgrade leaves the configuration %q, %v", text, err)
	}
	m.has(true, slices.Concat(launcher, stager, netplugins, cri)...)
	m.has(true, "var/lib/kurma/images", "var/lib/kurma-cri/images")

	m.dpkg("--remove", "kurma-cri") // which depends on stager
	m.has(false, "usr/bin/kurma-cri", "usr/lib/systemd/system/kurma-cri.service", "usr/lib/systemd/system/kurma-cri.socket")
	m.has(true, "etc/kurma/kurma-cri.json", "var/lib/kurma-cri/images")
	m.dpkg("--remove", "kurma-netplugins")
	if out := m.run("/usr/bin/launcher", "network", "list", "--json"); out != "" {
		t.Errorf("without the package there are networks: %q", out)
	}
	m.dpkg("--remove", "kurma-launcher", "stager")
	m.has(false, "usr/bin/launcher", "usr/lib/systemd/system/kurma-pod@.service", "usr/share/kurma")
	m.has(true, config, "var/lib/kurma/images")

	m.dpkg("--purge", "kurma-launcher", "stager", "kurma-netplugins", "kurma-cri")
	m.has(false, "etc/kurma", "var/lib/kurma", "var/lib/kurma-cri", "usr/share/doc/kurma-launcher", "usr/share/doc/stager")
	if left := m.dpkg("--list"); strings.Contains(left, "kurma") {
		t.Errorf("dpkg still knows:\n%s", left)
	}
}
