package sources

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/launcher/images"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// layerOf is a layer's archive: names that end in / are folders of user 1, "A=B" is a hard link A to B, "A>B" a symbolic link,
// others are files.
func layerOf(t *testing.T, names ...string) (archive []byte, diffID string) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range names {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
		if strings.HasSuffix(name, "/") {
			header.Typeflag, header.Mode, header.Uid, header.Gid = tar.TypeDir, 0o750, 1, 2
		}
		if link, to, ok := strings.Cut(name, "="); ok {
			header.Typeflag, header.Name, header.Linkname = tar.TypeLink, link, to
		}
		if link, to, ok := strings.Cut(name, ">"); ok {
			header.Typeflag, header.Name, header.Linkname = tar.TypeSymlink, link, to
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), fmt.Sprintf("sha256:%x", sha256.Sum256(out.Bytes()))
}

// convertLayer returns what a layer becomes on top of a layer with files of these modes: one word for each entry.
func convertLayer(t *testing.T, files map[string]os.FileMode, names ...string) ([]string, error) {
	t.Helper()
	archive, diffID := layerOf(t, names...)
	file := bytes.NewReader(archive)
	marks, err := scan(t.Context(), file, diffID)
	if err != nil {
		return nil, err
	}
	below := &images.Image{Dir: t.TempDir()}
	if err := os.Mkdir(below.Rootfs(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file, mode := filepath.Join(below.Rootfs(), name), files[name]
		if mode.IsDir() {
			if err := os.Mkdir(file, mode.Perm()); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	w := newLayerWriter(&out, []*images.Image{below})
	w.marks = marks
	if err := errors.Join(w.layer(t.Context(), file, diffID), w.tar.Close()); err != nil {
		return nil, err
	}
	var words []string
	for in := tar.NewReader(&out); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return words, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		word := header.Name
		switch header.Typeflag {
		case tar.TypeChar:
			word += fmt.Sprintf(" device %d:%d", header.Devmajor, header.Devminor)
		case tar.TypeDir:
			word += fmt.Sprintf(" %o", header.Mode)
		case tar.TypeLink:
			word += " = " + header.Linkname
		}
		if header.PAXRecords[opaqueAttribute] == "y" {
			word += " opaque"
		}
		words = append(words, word)
	}
}

// A layer's whiteouts become overlay's, which the drivers overlay and copy read.
func TestWhiteoutsBecomeOverlays(t *testing.T) {
	for _, tt := range []struct {
		name        string
		below       map[string]os.FileMode
		layer, want []string
	}{
		{"nothing", nil, []string{"a"}, []string{"rootfs 755", "rootfs/a"}},
		{"a whiteout", map[string]os.FileMode{"gone": 0o600}, []string{".wh.gone"}, []string{"rootfs 755", "rootfs/gone device 0:0"}},
		{"a whiteout of nothing", nil, []string{".wh.gone", "d/.wh.gone"}, []string{"rootfs 755", "rootfs/d 755"}},
		{
			"a whiteout in a folder of the layer below",
			map[string]os.FileMode{"d": fs.ModeDir | 0o700, "d/gone": 0o600},
			[]string{"d/.wh.gone", "d/.wh.other"},
			[]string{"rootfs 755", "rootfs/d 700", "rootfs/d/gone device 0:0"},
		},
		{
			"a whiteout in an opaque folder",
			map[string]os.FileMode{"d": fs.ModeDir | 0o700, "d/e": fs.ModeDir | 0o700, "d/e/gone": 0o600},
			[]string{"d/.wh..wh..opq", "d/e/.wh.gone"},
			[]string{"rootfs 755", "rootfs/d 700 opaque", "rootfs/d/e 700"},
		},
		{
			"a whiteout in a folder that is new",
			map[string]os.FileMode{"d": fs.ModeDir | 0o700, "d/gone": 0o600},
			[]string{".wh.d", "d/", "d/.wh.gone"},
			[]string{"rootfs 755", "rootfs/d device 0:0", "rootfs/d 700 opaque", "rootfs/d 750 opaque"},
		},
		{"an opaque folder", nil, []string{"d/", "d/.wh..wh..opq", "d/new"}, []string{"rootfs 755", "rootfs/d 755 opaque", "rootfs/d 750 opaque", "rootfs/d/new"}},
		{"an opaque folder that is not in the layer", map[string]os.FileMode{"d": fs.ModeDir | 0o711}, []string{"d/.wh..wh..opq"}, []string{"rootfs 755", "rootfs/d 711 opaque"}},
		{"an opaque root", nil, []string{".wh..wh..opq"}, []string{"rootfs 755 opaque"}},
		{"a whiteout of a folder that is new", map[string]os.FileMode{"d": fs.ModeDir | 0o700}, []string{".wh.d", "d/", "d/new"}, []string{"rootfs 755", "rootfs/d device 0:0", "rootfs/d 750 opaque", "rootfs/d/new"}},
		{"other files of aufs", nil, []string{".wh..wh.plnk/", ".wh..wh.aufs"}, []string{"rootfs 755"}},
		{"a file without its folder", map[string]os.FileMode{"d": fs.ModeDir | 0o700}, []string{"d/new"}, []string{"rootfs 755", "rootfs/d 700", "rootfs/d/new"}},
		{"names that lead out of the root", nil, []string{"../../a", "/b", "./c", "l=../../a"}, []string{"rootfs 755", "rootfs/a", "rootfs/b", "rootfs/c", "rootfs/l = rootfs/a"}},
	} {
		got, err := convertLayer(t, tt.below, tt.layer...)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
	for _, name := range []string{".wh.", "d/.wh..", "d/.wh..."} {
		if got, err := convertLayer(t, nil, name); err == nil || !strings.Contains(err.Error(), "hides nothing") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	archive, _ := layerOf(t, "a")
	if _, err := scan(t.Context(), bytes.NewReader(archive), "sha256:"+strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("another digest: %v", err)
	}
}

// A layer that has a file but not its folders takes them from the layers below. What a layer hides is not looked for in
// lower ones, and a link is not followed.
func TestAFolderIsAsTheLayersBelowHaveIt(t *testing.T) {
	const listed, implied = "40750 1:2", "40755 0:0"
	for _, tt := range []struct {
		name   string
		layers [][]string
		want   []string // of d and d/e
	}{
		{"of two layers", [][]string{{"d/"}, {"d/e/"}}, []string{listed, listed}},
		{"of none", [][]string{{"other/"}}, []string{implied, implied}},
		{"not listed by the topmost", [][]string{{"d/e/"}, {"d/e/old"}}, []string{implied, listed}},
		{"a whiteout", [][]string{{"d/", "d/e/"}, {"d/.wh.e"}}, []string{listed, implied}},
		{"a whiteout above", [][]string{{"d/", "d/e/"}, {".wh.d"}}, []string{implied, implied}},
		{"an opaque folder above", [][]string{{"d/", "d/e/"}, {"d/.wh..wh..opq"}}, []string{listed, implied}},
		{"a file", [][]string{{"d/", "d/e/"}, {"d"}}, []string{implied, implied}},
		{"a link to the host", [][]string{{"d/", "d/e/"}, {"d>/dev", "e>/"}}, []string{implied, implied}},
	} {
		f := newFetcher(t)
		var top *images.Image
		for _, layers := range [][][]string{tt.layers, append(slices.Clone(tt.layers), []string{"d/e/new"})} {
			image, err := f.Import(t.Context(), layoutOf(t, layers...))
			if err != nil {
				t.Fatal(err)
			}
			order, err := f.Store.Catalog(f.Ring, nil).Layers(image)
			if err != nil {
				t.Fatal(err)
			}
			top = order[1]
		}
		for i, name := range []string{"d", "d/e"} {
			var st unix.Stat_t
			err := unix.Lstat(filepath.Join(top.Rootfs(), name), &st)
			if got := fmt.Sprintf("%o %d:%d", st.Mode, st.Uid, st.Gid); err != nil || got != tt.want[i] {
				t.Errorf("%s: %s: %s, %v, want %s", tt.name, name, got, err, tt.want[i])
			}
		}
	}
}

// cpuOfImport returns how much CPU time an import takes.
func cpuOfImport(t *testing.T, layers ...[]string) time.Duration {
	t.Helper()
	f, layout := newFetcher(t), layoutOf(t, layers...)
	var before, after unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &before)
	if err == nil {
		_, err = f.Import(t.Context(), layout)
	}
	if err = errors.Join(err, unix.Getrusage(unix.RUSAGE_SELF, &after)); err != nil {
		t.Fatal(err)
	}
	cpu := func(u unix.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
	return time.Duration(cpu(after) - cpu(before))
}

// A deep folder of several layers takes as long as that of one, for each layer.
func TestDeepFoldersOfSeveralLayersTakeLittle(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "sources") // no disk's file system, whose times differ more
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	deep := func(times int) string { return strings.Repeat("d/", times) }
	turns := func() (names []string) {
		for i := range 200 {
			names = append(names, fmt.Sprintf("%d/%s%d/f", i%2, deep(1900), i))
		}
		return names
	}
	many := make([][]string, 20)
	for i := range many {
		many[i] = []string{fmt.Sprintf("%sf%d", deep(500), i)}
	}
	for _, tt := range []struct {
		name   string
		layers [][]string
	}{
		{"two layers", [][]string{{deep(2000) + "f0"}, {deep(2000) + "f1"}}},
		{"two deep folders in turn", [][]string{turns(), turns()}},
		{"20 layers", many},
	} {
		one, all := cpuOfImport(t, tt.layers[0]), cpuOfImport(t, tt.layers...)
		t.Logf("%s: %v, one layer %v", tt.name, all, one)
		if n := len(tt.layers); all > time.Duration(4*n)*one {
			t.Errorf("%s: %v of CPU time, one layer %v", tt.name, all, one)
		}
	}
}

// An archive without a tag is called as its file, without the endings that say how it is packed.
func TestAnArchiveWithoutATagIsCalledAsItsFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for path, want := range map[string]string{
		".": filepath.Base(dir), "./": filepath.Base(dir), "../layout/": "layout",
		"/a/redis.tar": "redis", "redis.tar.gz": "redis", "redis.tar.bz2": "redis", "redis.tar.xz": "redis", "redis.tar.zst": "redis", "redis.7.oci": "redis.7", "/a/redis": "redis",
	} {
		if have := baseName(path); have != want {
			t.Errorf("%s is called %q, want %q", path, have, want)
		}
	}
}

// Overlay's attributes would be orders to the kernel: what a layer of Docker or OCI calls so means nothing there.
func TestOverlaysAttributesAreDropped(t *testing.T) {
	const capability = xattrPrefix + "security.capability"
	var out bytes.Buffer
	w := newLayerWriter(&out, nil)
	header := &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, PAXRecords: map[string]string{
		capability: "kept", opaqueAttribute: "y", xattrPrefix + "trusted.overlay.redirect": "/etc", xattrPrefix + "trusted.overlay.metacopy": "", "comment": "none",
	}}
	if err := errors.Join(w.write(header, "d"), w.tar.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := tar.NewReader(&out).Next()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{capability: "kept"}, got.PAXRecords); diff != "" {
		t.Error(diff)
	}
}

// A layer is read twice. What somebody writes into its file meanwhile is not imported as the layer of that digest.
func TestALayerThatChangesIsRefused(t *testing.T) {
	_, checked := layerOf(t, "a")
	changed, _ := layerOf(t, "b")
	w := newLayerWriter(io.Discard, nil)
	if err := w.layer(t.Context(), bytes.NewReader(changed), checked); err == nil || !strings.Contains(err.Error(), "the digest of its content is") {
		t.Errorf("%v", err)
	}
}

// The paths that a small layer hides take little memory.
func TestALayerTakesLittleMemory(t *testing.T) {
	long, diffID := layerOf(t, strings.Repeat("a/", unix.PathMax))
	if _, err := scan(t.Context(), bytes.NewReader(long), diffID); err == nil || !strings.Contains(err.Error(), "a path of 8192 bytes") {
		t.Errorf("a long path: %v", err)
	}
	m := marks{whiteouts: make(map[string]bool), opaque: make(map[string]bool)}
	var err error
	most := 0
	for ; err == nil && most < maxMarkBytes/1000; most++ {
		err = m.note(fmt.Sprintf("%01000d/.wh.x", most))
	}
	if err == nil || most < maxMarkBytes/1100 {
		t.Errorf("%d paths: %v", most, err)
	}
}

// sparseFile is a tar with a file of so many bytes, of which it has none, as GNU tar stores sparse files in PAX records.
func sparseFile(t *testing.T, size string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	header := &tar.Header{Name: "GNUSparseFile.0/f", Size: 512, PAXRecords: map[string]string{
		// The writer takes no GNU.sparse records, so they go in under a name of the same length.
		"GNX.sparse.major": "1", "GNX.sparse.minor": "0", "GNX.sparse.name": "f", "GNX.sparse.realsize": size,
	}}
	if err := w.WriteHeader(header); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(append([]byte("0\n"), make([]byte, 510)...)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("GNX.sparse"), []byte("GNU.sparse"))
}

// The zeros of a sparse file count before they are written.
func TestASparseFileOfALayerIsLimited(t *testing.T) {
	for size, words := range map[string]string{
		"1073741824": "digest", "2147483648": "more than 1100 times as many", "9223372036854775807": "more than 1100 times as many",
	} {
		if _, err := scan(t.Context(), bytes.NewReader(sparseFile(t, size)), ""); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s bytes: %v, want %q", size, err, words)
		}
	}
}
