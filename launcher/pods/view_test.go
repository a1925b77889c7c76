package pods

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
)

// mountsBelow returns what the calling thread's mounts below a folder are, by their paths in it.
func mountsBelow(root string) (map[string]string, error) {
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	found := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		path, below := strings.CutPrefix(fields[4], root)
		if !below {
			continue
		}
		what := fields[5][:2] // ro or rw
		if strings.Contains(fields[5], "nosuid,nodev,noexec") {
			what += " guarded"
		}
		for _, propagation := range fields[6:] {
			if propagation == "-" {
				break
			}
			kind, _, _ := strings.Cut(propagation, ":")
			what += " " + kind
		}
		found[path] = what
	}
	return found, nil
}

// All mounts of the host are shared here, as systemd makes them, and volumes have mounts below them.
func TestAStagersMountsAreItsOwn(t *testing.T) {
	host := t.TempDir()
	pod := newStore(t).newPod(t, "mounts", "")
	for _, volume := range []Volume{{Name: "rw"}, {Name: "ro", ReadOnly: true}, {Name: "single", SingleMount: true}} {
		volume.Source = filepath.Join(host, volume.Name)
		if err := os.MkdirAll(filepath.Join(volume.Source, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		pod.Plan.Volumes = append(pod.Plan.Volumes, volume)
	}
	defer func() {
		if err := pod.removeDir(); err != nil {
			t.Error(err)
		}
	}()
	if err := pod.makeRoot(); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(pod.Dir, rootDir)
	var found map[string]string
	err := inOwnMounts(func() error {
		hosts, err := os.Open("/proc/thread-self/ns/mnt") // which holds the host's mounts after unshare(2)
		if err != nil {
			return err
		}
		defer hosts.Close()
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
		for _, volume := range pod.Plan.Volumes {
			err = errors.Join(err, unix.Mount("tmpfs", filepath.Join(volume.Source, "sub"), "tmpfs", 0, ""))
		}
		if err := errors.Join(err, unix.Unshare(unix.CLONE_NEWNS), pod.mountAll(root, &cgroups.Group{})); err != nil {
			return err
		}
		found, err = mountsBelow(root)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "rw", "/proc": "rw guarded", "/sys": "ro guarded",
		"/volumes/rw": "rw master", "/volumes/rw/sub": "rw master", "/volumes/ro": "ro master", "/volumes/ro/sub": "ro master",
		"/volumes/single": "rw master", "/volumes/single/sub": "",
	} {
		if found[path] != want {
			t.Errorf("%q is %q, want %q", path, found[path], want)
		}
	}
}

// Neither the umask nor the session of the monitor reaches the stager and its volumes.
func TestAStagerStartsAfresh(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	s := newStore(t)
	pod := s.newPod(t, "start", "umask\n/busybox awk -v pid=$$ '{print $6 == pid}' /proc/$$/stat\n/busybox stat -c '%a %u:%g' /volumes/empty\nexit 0\n")
	pod.Plan.Volumes = []Volume{{Name: "empty", Mode: 0o1775, UID: 7, GID: 8}}
	if err := os.Chmod(pod.Plan.StagerRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(pod.LogPath()); string(data) != "0022\n1\n1775 7:8\n" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAPodIsClosedToOtherUsers(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	s := newStore(t)
	pod := s.newPod(t, "modes", "exit 0\n")
	if _, err := pod.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{s.dir: 0o700, pod.Dir: 0o700, pod.LogPath(): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

// All pods of an image execute the image's own file, which none can write to. A program that has another name as well, or
// that is found by a link, is a copy.
func TestPodsOfAnImageShareItsProgram(t *testing.T) {
	for _, tt := range []struct {
		name, exec string
		prepare    func(dir string) error
		shared     bool
	}{
		{"plain", names.Exec, func(string) error { return nil }, true},
		{"above", "/.." + names.Exec, func(string) error { return nil }, true},
		{"named twice", names.Exec, func(dir string) error {
			return os.Link(filepath.Join(dir, names.Program), filepath.Join(dir, "again"))
		}, false},
		{"link", "/link", func(dir string) error { return os.Symlink(names.Program, filepath.Join(dir, "link")) }, false},
		{"below link", "/sbin" + names.Exec, func(dir string) error { return os.Symlink(".", filepath.Join(dir, "sbin")) }, false},
		{"below own link", "/sbin" + names.Exec, func(dir string) error { return os.Symlink("/", filepath.Join(dir, "sbin")) }, false},
	} {
		s := newStore(t)
		pod := s.newPod(t, tt.name, "/busybox stat -L -c '%i %a' $0; (: >>$0) 2>/dev/null && echo writable\nexit 0\n")
		pod.Plan.Exec[0] = tt.exec
		program := filepath.Join(pod.Plan.StagerRoot, names.Program)
		if err := errors.Join(os.Chmod(program, 0o711), tt.prepare(pod.Plan.StagerRoot)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pod.Run(t.Context(), true, noted); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		own := fmt.Sprintf("%d 711\n", info.Sys().(*syscall.Stat_t).Ino)
		log, err := os.ReadFile(pod.LogPath())
		if err != nil || tt.shared != (string(log) == own) || tt.shared == strings.HasSuffix(string(log), "\nwritable\n") {
			t.Errorf("%s: the stager says %q, %v; the image's file is %q", tt.name, log, err, own)
		}
		if _, err := s.Collect(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An image's link where the launcher writes a file is replaced, and a FIFO, which would block, or a device is refused.
func TestAnImagesFilesAreNotWrittenThrough(t *testing.T) {
	pod := newStore(t).newPod(t, "link", "")
	if err := os.Symlink("busybox", filepath.Join(pod.Plan.StagerRoot, manifestName)); err != nil {
		t.Fatal(err)
	}
	if err := pod.makeRoot(); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(pod.Dir, rootDir)
	if info, err := os.Lstat(filepath.Join(root, manifestName)); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(root, "busybox")); err != nil || info.Size() < 1<<10 {
		t.Errorf("the link was followed: %d bytes, %v", info.Size(), err)
	}
	if err := pod.removeDir(); err != nil {
		t.Error(err)
	}
	for name, mode := range map[string]uint32{"fifo": unix.S_IFIFO, "device": unix.S_IFCHR} {
		pod := newStore(t).newPod(t, name, "")
		if err := unix.Mknod(filepath.Join(pod.Plan.StagerRoot, names.Program+"-"+name), mode|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
		if err := pod.makeRoot(); err == nil || !strings.Contains(err.Error(), "a device or FIFO") {
			t.Errorf("%s: %v", name, err)
		}
		if err := pod.removeDir(); err != nil {
			t.Error(err)
		}
	}
}
