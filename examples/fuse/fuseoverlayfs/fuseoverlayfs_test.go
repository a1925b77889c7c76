package fuseoverlayfs

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/helper"
	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

func TestMain(m *testing.M) { unionfstest.Main(m) }

// starter starts helpers as children and keeps the last one.
type starter struct {
	*helper.Children
	last *helper.Process
}

func (s *starter) Start(ctx context.Context, cmd helper.Command) (*helper.Process, error) {
	process, err := s.Children.Start(ctx, cmd)
	s.last = process
	return process, err
}

// buffer takes a log that a test reads meanwhile.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func driver(t *testing.T) (Driver, *buffer) {
	t.Helper()
	text := &buffer{}
	log := slog.New(slog.NewTextHandler(text, nil))
	return Driver{Program: []string{"/usr/bin/fuse-overlayfs"}, Helpers: &helper.Children{Log: log}, Log: log}, text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The cases that are declared are those of Driver's documentation.
func TestFuseOverlayfsConforms(t *testing.T) {
	d, log := driver(t)
	unionfstest.Run(t, d, unionfstest.Unmet{
		"marks of overlay in layers":         "fuse-overlayfs also reads the mark of an opaque directory on a layer's own directory",
		"wh names are ordinary":              `fuse-overlayfs takes names that begin with ".wh." for its own marks, as in images of OCI`,
		"hard links":                         "fuse-overlayfs counts the links of a layer's file as it comes across them",
		"odd names":                          "fuse-overlayfs splits the path of its upper directory at ':'",
		"names of 255 bytes":                 "fuse-overlayfs keeps four bytes of a name free for its mark of a deleted file",
		"rename and link":                    "rename(2) of a layer's directory returns EXDEV, also of an empty one: fuse-overlayfs has no redirects",
		"rename of directories with content": "rename(2) of a layer's directory returns EXDEV: fuse-overlayfs has no redirects",
		"writes":                             "fuse-overlayfs copies a layer's FIFO as a regular file when its owner changes, and returns EIO",
	})
	if strings.Contains(log.String(), "lost") {
		t.Errorf("the driver reports roots that were unmounted:\n%s", log)
	}
}

// root makes a root of one layer with files, and mounts it until the test's end.
func root(t *testing.T, d Driver, layer string, files ...string) unionfs.Root {
	t.Helper()
	dir := t.TempDir()
	r := unionfs.Root{App: "a", Scratch: dir + "/scratch", Target: dir + "/target", Layers: []unionfs.Layer{{Dir: filepath.Join(dir, layer)}}}
	for _, path := range []string{r.Scratch, r.Target, r.Layers[0].Dir} {
		must(t, os.Mkdir(path, 0o755))
	}
	for _, file := range files {
		path := filepath.Join(r.Layers[0].Dir, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(file), 0o644))
	}
	must(t, d.Mount(t.Context(), r))
	t.Cleanup(func() { must(t, unionfstest.Unmount(r)) })
	return r
}

// The exceptions are as narrow as Driver's documentation has them: what is next to them works.
func TestExceptionsAreNarrow(t *testing.T) {
	d, _ := driver(t)
	for _, name := range []string{"a:b", "a,b", `a\b`, `trailing\`, "a\nb", "a=b", `"q'`, "-rf", "\xff\xfe", "%s"} {
		target := root(t, d, name, name).Target
		if text, err := os.ReadFile(filepath.Join(target, name)); string(text) != name {
			t.Errorf("layer %q: %q, %v", name, text, err)
		}
	}
	r := root(t, d, "layer", "old", "dir/file", "xattr")
	in := func(path string) string { return filepath.Join(r.Target, path) }
	must(t, os.WriteFile(in(strings.Repeat("n", 251)), nil, 0o644))
	if err := os.WriteFile(in(strings.Repeat("n", 252)), nil, 0o644); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a name of 252 bytes: %v", err)
	}
	if err := os.Rename(in("dir"), in("other")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("rename a directory of the layer: %v", err)
	}
	must(t, os.Rename(in("dir/file"), in("moved")))
	must(t, os.Mkdir(in("new"), 0o700))
	must(t, os.Rename(in("new"), in("dir/new")))
	must(t, os.Link(in("moved"), in("dir/new/link")))
	must(t, os.Lchown(in("old"), 7, 8))
	must(t, unix.Chmod(in("old"), 0o4711))
	must(t, os.Truncate(in("old"), 1))
	must(t, unix.Lsetxattr(in("xattr"), "trusted.t", []byte("v"), 0))
	must(t, unix.Mknod(in("null"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	must(t, os.WriteFile(in("null"), []byte("x"), 0))
	var st unix.Stat_t
	must(t, unix.Stat(in("old"), &st))
	if st.Uid != 7 || st.Gid != 8 || st.Mode&0o7777 != 0o4711 || st.Size != 1 {
		t.Errorf("a changed file is %+v", st)
	}
	if text, err := os.ReadFile(r.Layers[0].Dir + "/old"); string(text) != "old" {
		t.Errorf("the layer's file is %q, %v", text, err)
	}
}

// A root whose process ends is lost: the app sees an error and does not hang, and the driver
// logs it.
func TestALostHelperIsReported(t *testing.T) {
	d, log := driver(t)
	helpers := &starter{Children: d.Helpers.(*helper.Children)}
	d.Helpers = helpers
	r := root(t, d, "layer", "file")
	open, err := os.Open(r.Target + "/file")
	must(t, err)
	defer open.Close()
	helpers.last.Kill()
	<-helpers.last.Done()
	if _, err := os.ReadFile(r.Target + "/file"); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("read: %v", err)
	}
	if err := os.WriteFile(r.Target+"/new", nil, 0o644); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("write: %v", err)
	}
	again := r
	again.App = "again"
	d.watch(again, helpers.last)
	for _, want := range []string{"root file system is lost", "ENOTCONN", "app=again", "exit code 137"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
}

// A root whose last mount is gone has no process.
func TestHelperEndsWithItsRoot(t *testing.T) {
	d, log := driver(t)
	helpers := &starter{Children: d.Helpers.(*helper.Children)}
	d.Helpers = helpers
	must(t, unionfstest.Unmount(root(t, d, "layer", "file")))
	if err := helpers.last.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// Without /dev/fuse the driver works with a device node of its own.
func TestAMissingDeviceIsMade(t *testing.T) {
	d, log := driver(t)
	must(t, unix.Mount("tmpfs", "/dev", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount("/dev", unix.MNT_DETACH)) })
	must(t, unix.Mknod("/dev/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if _, err := d.Probe(t.TempDir(), nil); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// What is wrong is named on one line, and nothing is mounted.
func TestProbeSaysWhatIsWrong(t *testing.T) {
	d, _ := driver(t)
	colon := filepath.Join(t.TempDir(), "a:b")
	must(t, os.Mkdir(colon, 0o755))
	for name, test := range map[string]struct {
		program []string
		scratch string
		want    string
	}{
		"no program":            {[]string{"/no/such/program"}, t.TempDir(), "/no/such/program"},
		"program fails":         {[]string{"/bin/false"}, t.TempDir(), "ended with exit code 1"},
		"program never answers": {[]string{"/bin/sh", "-c", "exec 3<&-; read line"}, t.TempDir(), "wait for its first answer"},
		"colon":                 {d.Program, colon, "contains ':'"},
	} {
		bad := d
		bad.Program = test.program
		_, err := bad.Probe(test.scratch, nil)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(test.scratch); err != nil || len(left) != 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}

// A start that takes too long ends with its context.
func TestMountEndsWithItsContext(t *testing.T) {
	d, _ := driver(t)
	d.Program = []string{"/bin/sh", "-c", "sleep 1000"}
	dir := t.TempDir()
	r := unionfs.Root{App: "a", Scratch: dir + "/scratch", Target: dir + "/target", Layers: []unionfs.Layer{{Dir: dir}}}
	must(t, os.Mkdir(r.Scratch, 0o755))
	must(t, os.Mkdir(r.Target, 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), 100_000_000)
	defer cancel()
	if err := d.Mount(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Mount: %v", err)
	}
	must(t, unionfstest.Unmount(r))
}
