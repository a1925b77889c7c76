// Package docs executes the commands of the documents word for word, on a copy of this machine's file
// system that is thrown away: packages are installed in it, and pods run.
//
// STAGER_BIN is the folder of the built programs, STAGER_ACI the stager image, and STAGER_IMAGES the folder of the
// images of tests/images; the defaults are the repository's own.
package docs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.SettleWithBuilt()
	os.Exit(m.Run())
}

// document is a file with commands, in blocks of the language "sh". Blocks of "sh systemd", "sh rebooted" and
// "sh rebuild" are for tests/vm/systemd.sh and tools/release/reproducible.sh.
type document struct {
	file   string
	before string   // makes the files that the document begins with
	blocks int      // at least
	prints []string // what the commands print
}

func documents() []document {
	return []document{
		{"README.md", `cp /release/*.deb .`, 4, []string{
			"signed by", "first  running", "8080->80/tcp", "hello from hello", "hello from a pod", "hello from a command",
		}},
		{"docs/pods.md", "", 5, []string{
			`pod "one" with 1 app can be started`, "good morning from user 1000", `pod "stack" with 3 apps can be started`,
			"\npage number ", "8090->80/tcp", "web  running", `"fate": "enforced"`, " /data/pages\n",
			"hello from a pod\na note\n", "my-notes  ", "running, healthy", "app checked/web healthy",
			"\nvisit ", "8092->80/tcp", "(1 row)", "\nyou are visitor ",
		}},
		{"docs/operate.md", "", 5, []string{
			"msg=\"pod is running\"", "pod web ready", "\nfrom the app\n", "msg=stager version=", "/logs/hello/", "memory", "running", "hello from hello",
		}},
		{"docs/kurma.md", "", 2, []string{"signed by", names.Image}},
		{"docs/kubernetes.md", `cp /release/*.deb . && ` + socketUnit, 4, []string{"signed by", ": CRI v1\n", "RuntimeReady: yes\nNetworkReady: yes\n"}},
		{"docs/images.md", `
			mkdir -p tree/bin deb/DEBIAN deb/bin
			cp /bin/busybox tree/bin/ && cp /bin/busybox deb/bin/
			tar -c -C tree -f tool.tar .
			printf 'Package: tool\nVersion: 1\nArchitecture: all\nMaintainer: me <me@example.com>\nDescription: tool\n' >deb/DEBIAN/control
			dpkg-deb --build deb tool.deb && rm -r deb tree`, 7, []string{"dockerfile.aci: valid image", `"/bin/busybox"`, "Good signature|gpg: Signature made", "it works"}},
		{"docs/verify.md", `cp /release/* .`, 2, []string{"SHA512SUMS: signed by", "valid image", names.Image}},
	}
}

// socketUnit has systemctl start what the units of kurma-cri say, without systemd: the program gets the socket.
const socketUnit = `
	cat >/usr/local/sbin/systemctl <<'END'
#!/bin/sh
unit=/usr/lib/systemd/system/kurma-cri
systemd-socket-activate --listen "$(sed -n 's/^ListenStream=//p' $unit.socket)" $(sed -n 's/^ExecStart=//p' $unit.service) >/tmp/kurma-cri.log 2>&1 &
for n in 1 2 3 4 5 6 7 8 9 10; do
	! [ -S "$(sed -n 's/^ListenStream=//p' $unit.socket)" ] || exit 0
	sleep 1
done
exit 1
END
	chmod +x /usr/local/sbin/systemctl`

// commands are the blocks of a document.
func (d document) commands(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../" + d.file)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < d.blocks {
		t.Fatalf("%s has %d blocks of commands, want %d", d.file, len(blocks), d.blocks)
	}
	var all strings.Builder
	for _, block := range blocks {
		all.WriteString(block[1])
	}
	// A fork that has renamed its image need not edit the documents.
	image := regexp.MustCompile(`("defaultStagerImage": )"[^"]*"`)
	return image.ReplaceAllString(all.String(), `${1}"`+names.Image+`"`)
}

// release makes a release of what has been built, signed with a key of its own.
func release(t *testing.T) string {
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
	cmd := exec.Command("../release/dist.sh", bin, aci, out)
	cmd.Env = append(os.Environ(), "VERSION=1.0.0-test", "SOURCE_DATE_EPOCH=1700000000")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make aci first: %v\n%s", err, text)
	}
	return out
}

// hub makes a registry that stands in for Docker Hub, and returns its folder.
func hub(t *testing.T) string {
	t.Helper()
	images := os.Getenv("STAGER_IMAGES")
	if images == "" {
		images = "../../build/out/images"
	}
	out := t.TempDir()
	if text, err := exec.Command("registry/make.sh", images, out).CombinedOutput(); err != nil {
		t.Fatalf("make images first: %v\n%s", err, text)
	}
	return out
}

// sandbox executes a script with a file system under a layer in memory, in a network namespace of its own, beside a
// registry that stands in for Docker Hub. Only apt-get reaches this machine's network, which is descriptor 3. The
// processes of the script end with it.
const sandbox = `
set -eu
base=$1 release=$2 registry=$3 script=$4
mount --make-rprivate /
mount -t tmpfs layers /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay -o lowerdir="$base",upperdir=/mnt/upper,workdir=/mnt/work overlay /mnt/root
mount -t proc proc /mnt/root/proc
mount --rbind /sys /mnt/root/sys
mount --rbind /dev /mnt/root/dev
mount -t tmpfs run /mnt/root/run
mount -t tmpfs tmp /mnt/root/tmp
mount -t tmpfs srv /mnt/root/srv
rm -rf /mnt/root/etc/kurma /mnt/root/var/lib/kurma
mkdir -p /mnt/root/var/lib/kurma /mnt/root/release /mnt/root/etc/kurma/certs.d/docker.io
printf '[host."http://127.0.0.1:5000"]\n' >/mnt/root/etc/kurma/certs.d/docker.io/hosts.toml
echo 'Acquire::Retries "5";' >/mnt/root/etc/apt/apt.conf.d/99retries
mount -t tmpfs state /mnt/root/var/lib/kurma
mount --bind "$release" /mnt/root/release
cp --remove-destination -L /etc/resolv.conf /mnt/root/etc/resolv.conf
touch /mnt/root/run/network
mount --bind /proc/self/fd/3 /mnt/root/run/network
exec 3<&-
printf '#!/bin/sh\nexec nsenter --net=/run/network /usr/bin/apt-get "$@"\n' >/mnt/root/usr/local/sbin/apt-get
chmod +x /mnt/root/usr/local/sbin/apt-get
/bin/busybox ip link set lo up
"$registry/run" >/mnt/registry.log 2>&1 </dev/null &
exec chroot /mnt/root /usr/bin/env -i HOME=/tmp PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /bin/sh -c "$script" </dev/null
`

func TestDocumentsAreTrue(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := "docs/" + filepath.Base(file)
		known := slices.ContainsFunc(documents(), func(d document) bool { return d.file == name })
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The tests of these have names of their own: TestForkDocumentIsTrue, TestNetworkDocumentIsTrue, TestOneMachine.
		own := slices.Contains([]string{"docs/fork.md", "docs/networks.md", "docs/one-machine.md"}, name)
		if !known && !own && bytes.Contains(text, []byte("```sh")) {
			t.Errorf("no test executes %s", name)
		}
	}
	printed := execute(t, "/", release(t), hub(t), documents())
	for i, d := range documents() {
		d.check(t, printed[i])
	}
}

// check checks what the commands of a document have printed.
func (d document) check(t *testing.T, printed string) {
	t.Helper()
	for _, want := range d.prints {
		if !slices.ContainsFunc(strings.Split(want, "|"), func(one string) bool { return strings.Contains(printed, one) }) {
			t.Errorf("the commands of %s do not print %q:\n%s", d.file, want, printed)
		}
	}
}

// README.md's first pod, with its published port, and the pods of docs/pods.md, to the stack of nginx, an app and
// PostgreSQL, run on a fresh Debian, from packages alone.
func TestTheFirstPodRunsOnAFreshDebian(t *testing.T) {
	base, packages, registry, first := freshDebian(t), release(t), hub(t), documents()[:2]
	begin := time.Now()
	printed := execute(t, base, packages, registry, first)
	t.Logf("the commands of README.md and docs/pods.md took %.1f s", time.Since(begin).Seconds())
	for i, d := range first {
		d.check(t, printed[i])
	}
}

// freshDebian unpacks a root file system of Debian 12, which it keeps as an archive for the next time.
func freshDebian(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	script := `
		set -eu
		archive=../../build/out/debian.tar
		if [ ! -e "$archive" ]; then
			mkdir -p ../../build/out
			mmdebstrap --quiet --variant=minbase bookworm - "${MIRROR:-http://deb.debian.org/debian}" >"$archive.$$"
			mv "$archive.$$" "$archive"
		fi
		exec tar -x -f "$archive" -C "$1"
	`
	if text, err := exec.Command("sh", "-c", script, "debian", root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return root
}

// execute executes the documents' commands with a root file system, and returns what those of each have printed.
func execute(t *testing.T, base, packages, registry string, documents []document) []string {
	t.Helper()
	script := "set -eu\ntrap '[ $? = 0 ] || tail -n +1 /var/lib/kurma/pods/*/stager.log' EXIT\n"
	for _, d := range documents {
		script += "echo '== begin " + d.file + "'\nmkdir -p /tmp/doc/$(dirname " + d.file + ") && mkdir /tmp/doc/" + strings.ReplaceAll(d.file, "docs/", "") +
			"\n(\nset -eux\ncd /tmp/doc/" + strings.ReplaceAll(d.file, "docs/", "") + "\n" + d.before + "\n" + d.commands(t) + ")\n"
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-c", sandbox, "sandbox", base, packages, registry, script)
	network, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	cmd.ExtraFiles = []*os.File{network}
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	// The groups of pods that still ran at the sandbox's end.
	_ = exec.Command("find", "/sys/fs/cgroup", "-depth", "(", "-path", "*/kurma", "-o", "-path", "*/kurma/*", ")", "-type", "d", "-exec", "rmdir", "{}", "+").Run()
	if err != nil {
		t.Fatalf("%v\n%s", err, output.String())
	}
	return strings.Split(output.String(), "== begin ")[1:]
}
