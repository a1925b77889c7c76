package unionfstest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"kurma.io/stager/unionfs"
)

// fileCapability is cap_net_bind_service=ep as the kernel stores it.
const fileCapability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

func attributes(b *bench) {
	layer := b.layer(
		file("setuid", "s").perm(0o6755).owned(1, 2),
		file("private", "p").perm(0).owned(65534, 65534),
		file("caps", "c").perm(0o755).owned(3, 4).with("security.capability", fileCapability),
		file("attrs", "a").with("trusted.t", "t").with("security.s", strings.Repeat("v", 300)),
		dir("sticky").perm(0o1777),
		dir("setgid").perm(0o2750).owned(5, 6).with("trusted.d", "d"),
		file("setgid/inherits", "i").owned(0, 6),
		symlink("link", "nowhere").owned(7, 8).with("trusted.l", "l"),
		fifo("fifo").perm(0o622).owned(9, 10).with("trusted.f", "f"),
		socket("socket").perm(0o777),
		char("null", 1, 3).perm(0o666).owned(11, 12),
		block("ram", 1, 0).perm(0o660),
		char("big", 4095, 1048575).perm(0o600),
		file("big-file", strings.Repeat("0123456789abcdef", 1<<14)),
		dir("readonly").perm(0o555),
	)
	want := snapshot(b.t, layer.Dir)
	got := snapshot(b.t, b.mount(b.root(layer)))
	// Overlay may count a merged directory's links as 1, the kernel's way to say it does not know.
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record{}, "Ctime", "Nlink")); diff != "" {
		b.t.Errorf("layer and root (-layer +root):\n%s", diff)
	}
}

func hardLinks(b *bench) {
	root := b.stack([]item{
		file("one", "x"), hardlink("two", "one"), hardlink("sub/three", "one"),
		symlink("s1", "one"), hardlink("s2", "s1"), fifo("p1"), hardlink("p2", "p1"),
	}, []item{file("other", "o"), hardlink("one", "other")})
	for _, names := range [][]string{{"one", "two", "sub/three"}, {"s1", "s2"}, {"p1", "p2"}} {
		first := statOf(b.t, filepath.Join(root, names[0]))
		for _, n := range names {
			st := statOf(b.t, filepath.Join(root, n))
			if st.Ino != first.Ino || st.Dev != first.Dev || int(st.Nlink) != len(names) {
				b.t.Errorf("%s is inode %d with %d links, %s is %d", n, st.Ino, st.Nlink, names[0], first.Ino)
			}
		}
	}
	must(b.t, os.WriteFile(root+"/two", []byte("written"), 0o644))
	for _, n := range []string{"one", "two", "sub/three"} {
		if got, err := os.ReadFile(filepath.Join(root, n)); string(got) != "written" {
			b.t.Errorf("%s after writing to its link two: %q, %v", n, got, err)
		}
	}
}

// topDirectory checks the attributes of a root's own directory, the topmost layer's.
func topDirectory(b *bench) {
	top := b.layer(file("a", "a"), dir(".").perm(0o3751).owned(1000, 1001).with("trusted.t", "t").with("security.s", strings.Repeat("v", 300)))
	lower := b.layer(file("b", "b"), dir(".").perm(0o700).owned(5, 6).with("trusted.lower", "l"))
	wantTopOf(b, top, b.root(top, lower))
}

// topDirectoryFiltered is topDirectory where whitelists drop files of both layers.
func topDirectoryFiltered(b *bench) {
	top := b.layer(file("a", "a"), file("unlisted", "u"), dir(".").perm(0o1777).owned(1000, 1001).with("trusted.t", "t"))
	lower := b.layer(file("b", "b"), file("unlisted", "u"), dir(".").perm(0o700).owned(5, 6).with("trusted.lower", "l"))
	filters, err := unionfs.Filters([]unionfs.Image{{Whitelist: []string{"/a", "/b"}}, {Dependents: []int{0}}})
	must(b.t, err)
	top.Filter, lower.Filter = filters[0], filters[1]
	r := b.root(top, lower)
	wantTopOf(b, top, r)
	wantShape(b.t, r.Target, map[string]string{"a": "file a", "b": "file b"})
}

// wantTopOf mounts r and checks that the root's own directory is like top's.
func wantTopOf(b *bench, top unionfs.Layer, r unionfs.Root) {
	b.t.Helper()
	defer unix.Umask(unix.Umask(0o077))
	want, err := recordOf(top.Dir)
	must(b.t, err)
	got, err := recordOf(b.mount(r))
	must(b.t, err)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(record{}, "Ctime", "Nlink")); diff != "" {
		b.t.Errorf("top directory of layer and root (-layer +root):\n%s", diff)
	}
}

func mountPoint(b *bench) {
	root := b.stack([]item{file("a", "a")})
	must(b.t, unix.Mount("", root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
	err := os.WriteFile(root+"/new", nil, 0o644)
	if !errors.Is(err, unix.EROFS) {
		b.t.Errorf("write to a root remounted read-only: %v", err)
	}
}

func nodevScratch(b *bench) {
	r := b.root(b.layer(char("null", 1, 3).perm(0o666), file("setuid", "").perm(0o4755)))
	must(b.t, unix.Mount("tmpfs", r.Scratch, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(r.Scratch, unix.MNT_DETACH)) })
	root := b.mount(r)
	must(b.t, os.WriteFile(root+"/null", []byte("x"), 0))
	if top, inside := statOf(b.t, root).Dev, statOf(b.t, root+"/setuid").Dev; top != inside {
		b.t.Errorf("the root is device %d, a file in it %d", top, inside)
	}
	var fs unix.Statfs_t
	must(b.t, unix.Statfs(root, &fs))
	if bad := fs.Flags & (unix.ST_NOSUID | unix.ST_NODEV | unix.ST_NOEXEC); bad != 0 {
		b.t.Errorf("the root has mount flags %#x", bad)
	}
}

func oddNames(b *bench) {
	names := []string{
		"a:b", "a,b", `a\b`, `a\:b`, `trailing\`, "a b", "a\nb", "a\tb", "a=b", `"q'`, "-rf", "*", "ü", "\xff\xfe", "#", "%s",
		strings.Repeat("n", 255),
	}
	var items []item
	for _, n := range names {
		// Names of 255 bytes inside a layer are another case.
		n = n[:min(len(n), 242)]
		items = append(items, file(n, n), file("d/"+n+"/"+n, n))
	}
	for _, n := range names {
		layer := b.layerAt(filepath.Join(b.dir, n), items...)
		r := b.root(layer)
		for _, p := range []*string{&r.Scratch, &r.Target} {
			*p = filepath.Join(*p, n)
			must(b.t, os.Mkdir(*p, 0o755))
		}
		wantShape(b.t, b.mount(r), shape(b.t, layer.Dir))
	}
}

// longNames uses the longest names that file systems have, in a layer and for a new file.
func longNames(b *bench) {
	old, shorter, made := strings.Repeat("o", 255), strings.Repeat("s", 243), strings.Repeat("m", 255)
	root := b.stack([]item{file(old, "o"), file(shorter+"/"+old, "s")})
	wantShape(b.t, root, map[string]string{old: "file o", shorter: "dir", shorter + "/" + old: "file s"})
	must(b.t, os.WriteFile(root+"/"+made, []byte("m"), 0o644))
	must(b.t, os.Remove(root+"/"+old))
	must(b.t, os.RemoveAll(root+"/"+shorter))
	wantShape(b.t, root, map[string]string{made: "file m"})
}
