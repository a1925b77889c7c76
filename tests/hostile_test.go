package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
	"kurma.io/stager/tests/harness"
)

// hostileLinks returns symbolic links of an image, at paths at which the stager mounts or writes.
func hostileLinks() map[string]string {
	links := map[string]string{}
	for _, path := range []string{"dev", "proc", "sys", "etc", "tmp", "run", "dev/shm", "dev/pts", "dev/mqueue", "etc/resolv.conf", "etc/hosts", "etc/hostname", "etc/mtab"} {
		for kind, target := range map[string]string{
			"absolute": "/outside", "upwards": strings.Repeat("../", 12) + "%s", "root": "/",
			"dangling": "/no/such/place", "loop": "/" + path,
		} {
			links[path+" "+kind] = target
		}
	}
	return links
}

// The test starts pods of images whose paths are links: the pod runs or
// is refused with one line, and nothing outside changes.
func TestHostileImagesChangeNothingOutside(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore(), harness.StagerConfig(`{"gracePeriod": "0s"}`))
	outside := b.Folder("outside", 0o755)
	files := []string{filepath.Join(suite.Images, "busybox.aci")}
	names := map[string]string{}
	for link, target := range hostileLinks() {
		if strings.Contains(target, "%s") {
			target = fmt.Sprintf(target, strings.TrimPrefix(outside, "/"))
		}
		path, _, _ := strings.Cut(link, " ")
		name := strings.NewReplacer("/", "-", " ", "-", ".", "-").Replace(link)
		names[name] = link
		files = append(files, image(b, name, hostileManifest(name), func(root string) error {
			return errors.Join(
				os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755),
				os.Mkdir(filepath.Join(root, "outside"), 0o755),
				os.Symlink(target, filepath.Join(root, path)))
		}))
	}
	b.Must(append([]string{"image", "import"}, files...)...)
	b.LayersAreNow()
	before := hostState(b, outside)
	// One pod for each app: apps of one pod would hide each other's failures.
	for name, link := range names {
		r := b.Launcher("run", "--detach", "--name", name, "tests/"+name)
		path, _, _ := strings.Cut(link, " ")
		switch refused := fmt.Sprintf("start container %q: /%s in the root is a symbolic link", name, path); {
		case slices.Contains(spec.SystemFolders(), "/"+path) && !strings.Contains(r.Stderr, refused):
			t.Errorf("%s: exit status %d and %q, want %q", link, r.Code, r.Stderr, refused)
		case r.Code == 0:
			b.Must("rm", "--force", name)
		case r.Code != 1 || strings.Count(r.Stderr, "\n") != 1 || strings.Contains(r.Stderr, "panic"):
			t.Errorf("%s: exit status %d: %s", link, r.Code, r.Stderr)
		}
		if after := hostState(b, outside); after != before {
			t.Fatalf("%s changed the host:\n%s\nwas\n%s", link, after, before)
		}
	}
}

func hostileManifest(name string) string {
	return fmt.Sprintf(`{"acKind":"ImageManifest","acVersion":"0.8.11","name":"tests/%s",
		"dependencies":[{"imageName":"kurma.io/stager/tests/busybox"}],
		"app":{"exec":["/bin/sh","-c","echo up; exec sleep 1000"],"user":"0","group":"0"}}`, name)
}

// hostState returns what a hostile image could change: the contents of a folder of the host, and of
// the host's paths at which pods have mounts.
func hostState(b *harness.Machine, outside string) string {
	b.T.Helper()
	var all strings.Builder
	for _, dir := range []string{outside, "/dev/pts/..", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/mtab"} {
		info, err := os.Lstat(dir)
		if err != nil {
			fmt.Fprintln(&all, dir, "is not there")
			continue
		}
		fmt.Fprintln(&all, dir, info.Mode(), info.ModTime(), info.Size())
		entries, _ := os.ReadDir(dir) // of a file there are none
		for _, e := range entries {
			fmt.Fprint(&all, e.Name(), " ")
		}
	}
	return all.String()
}

// Apps with CAP_SYS_CHROOT climb out of a chroot and look through /proc, and find
// only their own root.
func TestAChrootEscapeEndsInTheAppsRoot(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprint("stager in a chroot ", direct), func(t *testing.T) {
			t.Parallel()
			b := suite.NewMachine(t)
			// chroot into a folder while the working directory stays outside, and climb.
			up := strings.Repeat("../", 30)
			script := `mkdir -p /jail/bin && cp /bin/busybox /jail/bin/sh 2>/dev/null; touch /mine
				cd /; exec 9</; for p in /proc/1/root/ /proc/1/cwd/ /proc/[0-9]*/root/; do ls $p >/dev/null 2>&1 && [ -e $p/manifest -o -e $p/layers ] && echo ESCAPED $p; done
				cat /proc/1/environ /proc/1/mem /proc/1/maps 2>/dev/null | grep . && echo READ
				chroot /jail /bin/sh -c 'cd ` + up + `; cd /proc/self/fd/9/` + up + ` 2>/dev/null; [ -e manifest -o -e layers ] && echo ESCAPED; true'
				ls ` + up + ` | grep -q -x -e manifest -e layers && echo ESCAPED root; [ -e ` + up + `mine ] && echo own root; echo done; exec sleep 1000`
			seen := ""
			if direct {
				d := b.Direct(harness.DocumentOf(harness.PodOf(suite.Shell("a", script), suite.Shell("b", "exec sleep 1000")), b.BusyboxLayer()), b.BusyboxLayer())
				d.StartReady()
				d.Sees("a", "stdout F done")
				seen = d.AppLog("a")
				d.Stop()
			} else {
				p := b.Up("p", harness.PodOf(suite.Shell("a", script), suite.Shell("b", "exec sleep 1000")))
				p.Sees("a", "done\n")
				seen = p.Logs("a")
				p.Stop()
			}
			if strings.Contains(seen, "ESCAPED") || strings.Contains(seen, "READ") || !strings.Contains(seen, "own root") {
				t.Errorf("the app says:\n%s", seen)
			}
		})
	}
}

// The test starts an image whose passwd file would block a reader for ever.
func TestAPasswdThatIsAFIFOBlocksNothing(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t, harness.OwnStore())
	b.Must("image", "import", filepath.Join(suite.Images, "busybox.aci"), image(b, "fifo", hostileManifest("fifo"), func(root string) error {
		return errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), unix.Mkfifo(filepath.Join(root, "etc/passwd"), 0o644))
	}))
	b.LayersAreNow()
	p := b.Adopt(b.Must("run", "--json", "--detach", "--name", "fifo", "tests/fifo"))
	p.Sees("fifo", "up\n")
	p.Stop()
}
