package containertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// Whoever changes an app's root, volumes or mounts during starts costs this app's start at most.
func neighbourCases() []testCase {
	return []testCase{
		{"an app with CAP_SYS_ADMIN changes no mask of another app", remountMasks},
		{"a neighbour that mounts and remounts disturbs no start", remountingNeighbour},
		{"links that change during a start lead nowhere outside the root", swappedLinks},
		{"a program on a volume without execution is an ExecError", noexecVolume},
	}
}

// remountMasks has an app make the file systems writable that hide folders, and fill them. Files can be hidden by the
// machine's own null device, so the app leaves those alone.
func remountMasks(b *bench) {
	const paths = "/proc/acpi /proc/asound /proc/scsi /sys/firmware /sys/devices/virtual/powercap"
	const list = "for p in " + paths + "; do ls -A $p 2>/dev/null; done; true"
	before := b.run(b.sh(list))
	s := b.sh("for p in " + paths + "; do /bin/busybox mount -o remount,rw none $p && echo writable; echo x >$p/left; done 2>/dev/null; true")
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN")
	if r := b.run(s); r.status != 0 || !strings.Contains(r.text, "writable") {
		b.t.Errorf("the app ends with status %#x and writes %q", r.status, r.text)
	}
	b.wantRun(b.sh(list), before.text)
}

// startsUnderAttack is how many starts a case makes while somebody works against them.
const startsUnderAttack = 30

func remountingNeighbour(b *bench) {
	s := b.sh(`while :; do
		for p in /proc /dev /; do mount -t tmpfs none $p/tmp; mount -o remount,ro $p; mount -o remount,rw,nosuid $p; done
		mount --bind / /tmp; umount -l /tmp; mount --make-rshared /
	done 2>/dev/null`)
	b.mountCommands()
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN")
	b.otherRoot(&s)
	b.start(s, spec.Stdio{})
	for range startsUnderAttack {
		b.wantRun(b.sh("echo x >/tmp/x && [ -c /dev/null ] && [ -d /proc/self ] && echo ok"), "ok\n")
	}
}

// mountCommands adds mount and umount to the root.
func (b *bench) mountCommands() {
	for _, name := range []string{"mount", "umount"} {
		must(b.t, os.Symlink("busybox", filepath.Join(b.root, "bin", name)))
	}
}

// otherRoot gives an app a root on a file system of its own, with the same files.
func (b *bench) otherRoot(s *spec.Spec) {
	first := b.root
	b.root = b.folder() + "/root"
	b.makeRoot()
	b.mountCommands()
	s.Root, b.root = b.root, first
}

// swappedLinks has a folder of the app's root change places with links that lead out of the root, while targets of
// mounts are looked up and made in it.
func swappedLinks(b *bench) {
	outside := b.folder()
	at := func(name string) string { return filepath.Join(b.root, name) }
	must(b.t, os.Mkdir(at("swapped"), 0o755))
	links := []string{outside, "../../../../../../../.." + outside, "/proc/1/root" + outside, "/proc/self/cwd/.." + outside}
	for i, link := range links {
		must(b.t, os.Symlink(link, at(fmt.Sprint("link", i))))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default: // twice, so that the folder is in its place half of the time
				link := at(fmt.Sprint("link", i/2%len(links)))
				_ = unix.Renameat2(unix.AT_FDCWD, at("swapped"), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
			}
		}
	}()
	source := b.folder()
	must(b.t, os.WriteFile(filepath.Join(source, "file"), []byte("x"), 0o644))
	var worked int
	for range startsUnderAttack {
		s := b.spec("true")
		s.Mounts = []spec.Mount{
			{Source: source, Target: "/swapped/made/here"},
			{Source: filepath.Join(source, "file"), Target: "/swapped/made/file"},
		}
		if _, err := b.tryRun(s); err == nil {
			worked++
		}
	}
	close(stop)
	<-stopped
	b.t.Logf("%d of %d starts worked", worked, startsUnderAttack)
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		b.t.Errorf("outside the root there are %v, %v", left, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), outside) {
		b.t.Errorf("something is mounted outside the root, %v", err)
	}
}

func noexecVolume(b *bench) {
	volume := b.folder()
	must(b.t, unix.Mount("tmpfs", volume, "tmpfs", unix.MS_NOEXEC, "mode=0755"))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(volume, unix.MNT_DETACH)) })
	program, err := os.ReadFile("/bin/busybox")
	must(b.t, err)
	must(b.t, os.WriteFile(filepath.Join(volume, "true"), program, 0o755))
	s := b.spec("/volume/true")
	s.Mounts = []spec.Mount{{Source: volume, Target: "/volume"}}
	_, err = b.tryRun(s)
	if failed := new(spec.ExecError); !errors.As(err, &failed) || !errors.Is(failed.Errno, unix.EACCES) {
		b.t.Errorf("error %v", err)
	}
}
