package sandboxes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/thread"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// A symbolic link leads no mount elsewhere: neither a link of the outer mount's owner, nor one at the source.
func TestMountsFollowNoLinks(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.Mkdir(path("source"), 0o700), os.Mkdir(path("outside"), 0o700), os.MkdirAll(path("top/inside"), 0o700),
		os.Symlink(path("outside"), path("top/absolute")), os.Symlink("inside", path("top/relative")),
		os.Symlink("source", path("link")))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []records.Bind{
		{Source: path("source"), Target: "absolute/x"},
		{Source: path("source"), Target: "relative"},
		{Source: path("link"), Target: "inside"},
		{Source: path("link/."), Target: "inside"},
	} {
		t.Cleanup(func() { _ = unix.Unmount(path("top/inside"), unix.MNT_DETACH) })
		if err := attachInner(path("top"), b); !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EXDEV) {
			t.Errorf("%s at %s: %v", b.Source, b.Target, err)
		}
	}
	for _, name := range []string{"outside", "top/inside"} {
		if made, err := os.ReadDir(path(name)); err != nil || len(made) > 0 {
			t.Errorf("%s: %v, %v", name, made, err)
		}
	}
}

// The unmount of a copy of the host's mounts leaves the host's.
func TestAnUnmountStaysHere(t *testing.T) {
	surroundings.Root(t)
	host, copied := t.TempDir(), t.TempDir()
	err := thread.New(func() error {
		inner := filepath.Join(host, "inner")
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("test", host, "tmpfs", 0, ""), unix.Mount("", host, "", unix.MS_SHARED, ""),
			os.Mkdir(inner, 0o700), unix.Mount("test", inner, "tmpfs", 0, ""),
			unix.Mount(host, copied, "", unix.MS_BIND|unix.MS_REC, ""))
		if err != nil {
			return err
		}
		if err := unmount(copied); err != nil {
			return err
		}
		mounts, err := os.ReadFile("/proc/thread-self/mounts")
		if err == nil && (!strings.Contains(string(mounts), inner) || strings.Contains(string(mounts), copied)) {
			err = fmt.Errorf("mounts are\n%s", mounts)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// The holder of a PID namespace has nothing of the host: an app with CAP_SYS_PTRACE may become that process.
func TestAHolderHasNothing(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	if _, err := new(Maker).PIDs(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := releasePIDs(dir); err != nil {
			t.Error(err)
		}
	})
	holder, err := holderOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	process := fmt.Sprintf("/proc/%d/", holder)
	if files, err := os.ReadDir(process + "root"); err != nil || len(files) > 0 {
		t.Errorf("its root has %v, %v", files, err)
	}
	text, err := os.ReadFile(process + "status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n", "CapEff:\t0000000000000000\n",
		"CapPrm:\t0000000000000000\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("its status has no %q:\n%s", want, text)
		}
	}
}
