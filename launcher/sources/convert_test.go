package sources

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
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

	"kurma.io/stager/build"
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
	return out.Bytes(), digestOf(out.Bytes())
}

// storeLayer imports a layer on layers of which the lowest is the first.
func (f *Fetcher) storeLayer(ctx context.Context, file io.ReadSeeker, of blob, diffID string, below ...*images.Image) (*images.Image, error) {
	s := &stack{fetcher: f, layers: below}
	return s.store(layerManifest("test"), func(w *layerWriter) error { return of.read(ctx, file, diffID, w.layer) })
}

// convertLayer returns what a layer becomes on top of a layer with files of these modes: one word for each file.
func convertLayer(t *testing.T, files map[string]os.FileMode, names ...string) ([]string, error) {
	t.Helper()
	archive, diffID := layerOf(t, names...)
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
	image, err := newFetcher(t).storeLayer(t.Context(), bytes.NewReader(archive), blob{size: -1}, diffID, below)
	if err != nil {
		return nil, err
	}
	entries, err := build.Tree(image.Rootfs(), true)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, e := range entries {
		word := filepath.Join("rootfs", e.Name)
		switch e.Type {
		case tar.TypeChar:
			word += fmt.Sprintf(" device %d:%d", e.DevMajor, e.DevMinor)
		case tar.TypeDir:
			word += fmt.Sprintf(" %o", e.Mode.Perm())
		case tar.TypeLink:
			word += " = rootfs/" + e.Link
		case tar.TypeSymlink:
			word += " > " + e.Link
		}
		if slices.Contains(attributesOf(t, e.Source), overlayPrefix+"opaque=y") {
			word += " opaque"
		}
		words = append(words, word)
	}
	return words, nil
}

// attributesOf returns a file's extended attributes, NAME=VALUE each.
func attributesOf(t *testing.T, path string) (all []string) {
	t.Helper()
	names, value := make([]byte, 4096), make([]byte, 4096)
	n, err := unix.Llistxattr(path, names)
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		size, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name+"="+string(value[:size]))
	}
	return all
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
			[]string{"rootfs 755", "rootfs/d 750 opaque"},
		},
		{"an opaque folder", nil, []string{"d/", "d/.wh..wh..opq", "d/new"}, []string{"rootfs 755", "rootfs/d 750 opaque", "rootfs/d/new"}},
		{"an opaque folder that is not in the layer", map[string]os.FileMode{"d": fs.ModeDir | 0o711}, []string{"d/.wh..wh..opq"}, []string{"rootfs 755", "rootfs/d 711 opaque"}},
		{"an opaque root", nil, []string{".wh..wh..opq"}, []string{"rootfs 755 opaque"}},
		{"a whiteout of a folder that is new", map[string]os.FileMode{"d": fs.ModeDir | 0o700}, []string{".wh.d", "d/", "d/new"}, []string{"rootfs 755", "rootfs/d 750 opaque", "rootfs/d/new"}},
		{
			"a whiteout before and after its file",
			map[string]os.FileMode{"a": 0o600, "b": 0o600, "d": fs.ModeDir | 0o700, "e": fs.ModeDir | 0o700},
			[]string{".wh.a", "a", "b", ".wh.b", ".wh.d", "d", "e/", ".wh.e"},
			[]string{"rootfs 755", "rootfs/a", "rootfs/b", "rootfs/d", "rootfs/e 750 opaque"},
		},
		{
			"whiteouts below a link and a file of the layer",
			map[string]os.FileMode{"d": fs.ModeDir | 0o700, "d/gone": 0o600, "e": fs.ModeDir | 0o700, "e/gone": 0o600},
			[]string{"d/.wh.gone", "d/.wh..wh..opq", "d>other", "other/", "other/gone", "e", "e/.wh.gone", "e/f/.wh..wh..opq"},
			[]string{"rootfs 755", "rootfs/d > other", "rootfs/e", "rootfs/other 750", "rootfs/other/gone"},
		},
		{
			"a whiteout below another",
			map[string]os.FileMode{"d": fs.ModeDir | 0o711, "d/gone": 0o600},
			[]string{".wh.d", "d/.wh.gone"},
			[]string{"rootfs 755", "rootfs/d 711 opaque"},
		},
		{
			"an opaque folder after its files",
			map[string]os.FileMode{"d": fs.ModeDir | 0o700},
			[]string{"d/e/new", "d/", "d/.wh..wh..opq"},
			[]string{"rootfs 755", "rootfs/d 750 opaque", "rootfs/d/e 755", "rootfs/d/e/new"},
		},
		{
			"files beyond links of the layer",
			nil,
			[]string{"usr/", "lib>usr/lib", "lib/a", "l=lib/a", "abs>/usr", "abs/b", "up>../../usr", "up/c/", "up/c/d", "m=/up/c/d", "none>/new/e", "none/f"},
			[]string{"rootfs 755", "rootfs/abs > /usr", "rootfs/l", "rootfs/lib > usr/lib", "rootfs/m", "rootfs/new 755", "rootfs/new/e 755", "rootfs/new/e/f", "rootfs/none > /new/e", "rootfs/up > ../../usr", "rootfs/usr 750", "rootfs/usr/b", "rootfs/usr/c 750", "rootfs/usr/c/d = rootfs/m", "rootfs/usr/lib 755", "rootfs/usr/lib/a = rootfs/l"},
		},
		{
			"a folder that the layer replaces by a link",
			nil,
			[]string{"d/", "e/", "d>e", "d/a"},
			[]string{"rootfs 755", "rootfs/d > e", "rootfs/e 750", "rootfs/e/a"},
		},
		{"whiteouts beyond a link of the layer", map[string]os.FileMode{"d": fs.ModeDir | 0o700, "d/gone": 0o600}, []string{"l>d", "l/.wh.gone"}, []string{"rootfs 755", "rootfs/d 700", "rootfs/d/gone device 0:0", "rootfs/l > d"}},
		{"other files of aufs", nil, []string{".wh..wh.plnk/", ".wh..wh.aufs"}, []string{"rootfs 755"}},
		{"a file without its folder", map[string]os.FileMode{"d": fs.ModeDir | 0o700}, []string{"d/new"}, []string{"rootfs 755", "rootfs/d 700", "rootfs/d/new"}},
		{"names that lead out of the root", nil, []string{"../../a", "/b", "./c", "l=../../a"}, []string{"rootfs 755", "rootfs/a", "rootfs/b", "rootfs/c", "rootfs/l = rootfs/a"}},
	} {
		got, err := convertLayer(t, tt.below, tt.layer...)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
	if got, err := convertLayer(t, nil, "a>b", "b>/a", "a/x"); err == nil || !strings.Contains(err.Error(), "more than 40 symbolic links") {
		t.Errorf("links in a circle: %v, %v", got, err)
	}
	for _, name := range []string{".wh.", "d/.wh..", "d/.wh..."} {
		if got, err := convertLayer(t, nil, name); err == nil || !strings.Contains(err.Error(), "hides nothing") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
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
	const capability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" // of the second version
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	header := &tar.Header{Typeflag: tar.TypeDir, Name: "d", Mode: 0o755, Format: tar.FormatPAX, PAXRecords: map[string]string{
		xattrPrefix + "security.capability": capability, opaqueAttribute: "y", xattrPrefix + "trusted.overlay.redirect": "/etc",
		xattrPrefix + "trusted.overlay.metacopy": "", "comment": "none",
	}}
	if err := errors.Join(w.WriteHeader(header), w.Close()); err != nil {
		t.Fatal(err)
	}
	image, err := newFetcher(t).storeLayer(t.Context(), bytes.NewReader(out.Bytes()), blob{size: -1}, digestOf(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"security.capability=" + capability}, attributesOf(t, filepath.Join(image.Rootfs(), "d"))); diff != "" {
		t.Error(diff)
	}
}

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// counted counts what is read of a file.
type counted struct {
	*bytes.Reader
	read int
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// A layer is read once, whatever it hides. It is imported only if its file and its content are what the image says. What
// somebody writes into the file later changes nothing.
func TestALayerIsReadOnceAndChecked(t *testing.T) {
	archive, diffID := layerOf(t, "d/", "d/.wh.gone", "d/.wh..wh..opq", "file", ".wh.old")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	changed, _ := layerOf(t, "d/", "d/.wh.gone", "d/.wh..wh..opq", "other", ".wh.old")
	file := packed.Bytes()
	spoiled := slices.Clone(file)
	spoiled[len(spoiled)/2]++
	exactly := func(data []byte) blob { return blob{digestOf(data), int64(len(data))} }
	for _, tt := range []struct {
		name   string
		data   []byte
		of     blob
		diffID string
		words  string
	}{
		{"packed", file, exactly(file), diffID, ""},
		{"plain", archive, exactly(archive), diffID, ""},
		{"of any digest and size", file, blob{size: -1}, diffID, ""},
		{"another content", changed, blob{size: -1}, diffID, "the digest of its content is sha256:"},
		{"another file", file, exactly(archive), diffID, fmt.Sprintf("%d bytes, not %d", len(file), len(archive))},
		{"a file that is cut off", file[:len(file)-9], exactly(file), diffID, fmt.Sprintf("%d bytes, not %d", len(file)-9, len(file))},
		{"a damaged file", spoiled, exactly(file), diffID, "digest sha256:"},
		{"a damaged file of any digest", file[:len(file)-9], blob{size: -1}, diffID, "unexpected EOF"},
		{"data after the end", append(slices.Clone(file), 'x'), exactly(file), diffID, fmt.Sprintf("%d bytes, not %d", len(file)+1, len(file))},
		{"zeros after the end", append(slices.Clone(archive), make([]byte, 512)...), exactly(archive), diffID, fmt.Sprintf("%d bytes, not %d", len(archive)+512, len(archive))},
	} {
		f, in := newFetcher(t), &counted{Reader: bytes.NewReader(tt.data)}
		image, err := f.storeLayer(t.Context(), in, tt.of, tt.diffID)
		if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.words)
		}
		if in.read != len(tt.data) {
			t.Errorf("%s: read %d of %d bytes", tt.name, in.read, len(tt.data))
		}
		if all, listErr := f.Store.List(); listErr != nil || len(all) > 0 != (err == nil) {
			t.Errorf("%s: %v, the store has %d images, %v", tt.name, image, len(all), listErr)
		}
		if err := tt.of.read(t.Context(), in, tt.diffID, nil); (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s, for its digests alone: %v, want %q", tt.name, err, tt.words)
		}
	}
}

// The paths that a small layer hides take little memory.
func TestALayerTakesLittleMemory(t *testing.T) {
	long, diffID := layerOf(t, strings.Repeat("a/", unix.PathMax))
	if _, err := newFetcher(t).storeLayer(t.Context(), bytes.NewReader(long), blob{size: -1}, diffID); err == nil || !strings.Contains(err.Error(), "a path of 8192 bytes") {
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
		if _, err := newFetcher(t).storeLayer(t.Context(), bytes.NewReader(sparseFile(t, size)), blob{size: -1}, ""); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s bytes: %v, want %q", size, err, words)
		}
	}
}
