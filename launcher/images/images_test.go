package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/build"
	"kurma.io/stager/signing"
	"kurma.io/stager/spec"
	"kurma.io/stager/tests/surroundings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"
)

const testManifest = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/a","labels":[{"name":"version","value":"1"}]}`

// file is an entry of a test's archive.
type file struct {
	tar.Header
	content string
}

func dir(name string) file {
	return file{Header: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func regular(name, content string) file {
	return file{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content: content}
}

func link(kind byte, name, target string) file {
	return file{Header: tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o777}}
}

// archive writes a tar, with the manifest first unless it is "".
func archive(t *testing.T, manifest string, files ...file) []byte {
	t.Helper()
	if manifest != "" {
		files = append([]file{regular("manifest", manifest)}, files...)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		f.Size = int64(len(f.content))
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func newStore(t *testing.T) *Store {
	t.Helper()
	surroundings.Root(t)
	s := Open(filepath.Join(t.TempDir(), "images"))
	return s
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *Store) importData(t *testing.T, data []byte) (*Image, error) {
	t.Helper()
	return s.Import(t.Context(), writeFile(t, "image.aci", data), signing.KeyRing{}, nil)
}

// checkOnly makes sure that the store holds these images and nothing else.
func (s *Store) checkOnly(t *testing.T, ids ...string) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for _, e := range entries {
		if e.Name() != ".lock" && e.Name() != ".imports" {
			left++
		}
	}
	if left != len(ids) {
		t.Errorf("the store holds %v, want %v", entries, ids)
	}
	for _, id := range ids {
		if _, err := s.Get(id); err != nil {
			t.Error(err)
		}
	}
}

func TestImportReadsEveryCompression(t *testing.T) {
	surroundings.Root(t)
	plain := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "content"))
	sum := sha512.Sum512(plain)
	want := "sha512-" + hex.EncodeToString(sum[:])
	for _, program := range []string{"cat", "gzip", "bzip2", "xz"} {
		t.Run(program, func(t *testing.T) {
			s := newStore(t)
			cmd := exec.Command(program)
			cmd.Stdin = bytes.NewReader(plain)
			packed, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time it is there
				image, err := s.importData(t, packed)
				if err != nil || image.ID != want {
					t.Fatalf("%v, %v; want %s", image, err, want)
				}
				if data, err := os.ReadFile(filepath.Join(image.Rootfs(), "f")); string(data) != "content" {
					t.Errorf("%q, %v", data, err)
				}
			}
			s.checkOnly(t, want)
			if _, err := s.importData(t, packed[:len(packed)-20]); err == nil && program != "cat" {
				t.Error("a file that is cut off is taken")
			}
			s.checkOnly(t, want)
		})
	}
}

// A file of Zstandard may begin with a frame that decoders skip, as pzstd writes it.
func TestImportSkipsFramesOfZstandard(t *testing.T) {
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := encoder.EncodeAll(archive(t, testManifest, dir("rootfs")), nil)
	for _, front := range []string{"", "\x50\x2a\x4d\x18\x04\x00\x00\x00size", "\x5f\x2a\x4d\x18\x00\x00\x00\x00"} {
		if _, err := newStore(t).importData(t, append([]byte(front), packed...)); err != nil {
			t.Errorf("% x: %v", front, err)
		}
	}
}

func TestImportRefusesWrongArchives(t *testing.T) {
	surroundings.Root(t)
	root := dir("rootfs")
	tests := []struct {
		name, words string
		data        []byte
	}{
		{"empty", "no manifest", nil},
		{"garbage", "archive", bytes.Repeat([]byte("garbage "), 1000)},
		{"broken gzip", "decompress", []byte{0x1f, 0x8b, 0, 0, 0, 0, 0}},
		{"no manifest", "no manifest", archive(t, "", root)},
		{"no rootfs", "no rootfs", archive(t, testManifest)},
		{"two manifests", "second manifest", archive(t, testManifest, regular("./manifest", testManifest), root)},
		{"manifest is a link", "want a file", archive(t, "", link(tar.TypeSymlink, "manifest", "/etc/passwd"), root)},
		{"bad manifest", "image", archive(t, `{"acKind":"PodManifest"}`, root)},
		{"manifest that is not JSON", "image", archive(t, `{`, root)},
		{"rootfs is a link", "not a folder", archive(t, testManifest, link(tar.TypeSymlink, "rootfs", "/etc"))},
		{"something else", "nothing else", archive(t, testManifest, root, regular("other", "x"))},
		{"dots", `".."`, archive(t, testManifest, root, regular("rootfs/../../x", "x"))},
		{"dots at the end", `".."`, archive(t, testManifest, root, dir("rootfs/a/.."))},
		{"absolute", "absolute", archive(t, testManifest, root, regular("/rootfs/x", "x"))},
		{"through a symlink", "escapes", archive(t, testManifest, root, link(tar.TypeSymlink, "rootfs/l", "/etc"), regular("rootfs/l/x", "x"))},
		{"through a relative symlink", "escapes", archive(t, testManifest, root, link(tar.TypeSymlink, "rootfs/l", "../.."), regular("rootfs/l/x", "x"))},
		{"through a symlink to the folder above", "escapes", archive(t, testManifest, root, link(tar.TypeSymlink, "rootfs/l", ".."), regular("rootfs/l/x", "x"))},
		{"through too many symlinks", "symbolic links of more than 64 names", chained(t, maxLinkNames+1)},
		{"data after the end", "data follows its end marker", append(archive(t, testManifest, root), "data"...)},
		{"manifest too large", "want a file of at most 4194304 bytes", archive(t, testManifest+strings.Repeat(" ", 4<<20), root)},
		{"folder through a symlink", "escapes", archive(t, testManifest, root, link(tar.TypeSymlink, "rootfs/l", "/"), dir("rootfs/l/x"))},
		{"device through a symlink", "escapes", archive(t, testManifest, root, link(tar.TypeSymlink, "rootfs/l", "/tmp"),
			file{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "rootfs/l/x"}})},
		{"hard link to the manifest", "not in rootfs", archive(t, testManifest, root, link(tar.TypeLink, "rootfs/l", "manifest"))},
		{"hard link outside", `".."`, archive(t, testManifest, root, link(tar.TypeLink, "rootfs/l", "rootfs/../../../etc/passwd"))},
		{"absolute hard link", "absolute", archive(t, testManifest, root, link(tar.TypeLink, "rootfs/l", "/etc/passwd"))},
		{"hard link through a symlink", "escapes", archive(t, testManifest, root,
			link(tar.TypeSymlink, "rootfs/s", "/etc"), link(tar.TypeLink, "rootfs/l", "rootfs/s/passwd"))},
		{"hard link to nothing", "no such file", archive(t, testManifest, root, link(tar.TypeLink, "rootfs/l", "rootfs/none"))},
		{"name too long", "too long", archive(t, testManifest, root, regular("rootfs/"+strings.Repeat("n", 300), "x"))},
		{"unknown type", "unknown type", archive(t, testManifest, root, file{Header: tar.Header{Typeflag: '7', Name: "rootfs/c"}})},
		{"cut off", "unexpected EOF", archive(t, testManifest, root, regular("rootfs/f", strings.Repeat("x", 4096)))[:3000]},
		{"user ID of 33 bits", `extract "rootfs/f": user ID 4294967301 is not within`, archive(t, testManifest, root, owned(1<<32+5, 0))},
		{"user ID that is none", "user ID 4294967295 is not within", archive(t, testManifest, root, owned(1<<32-1, 0))},
		{"negative group ID", "group ID -5 is not within", archive(t, testManifest, root, owned(0, -5))},
		{"device number of 33 bits", "device 4294967297:3: want", archive(t, testManifest, root,
			file{Header: tar.Header{Typeflag: tar.TypeChar, Name: "rootfs/d", Devmajor: 1<<32 + 1, Devminor: 3, Format: tar.FormatGNU}})},
		{"path too long", "more than Linux takes", archive(t, testManifest, root, regular("rootfs/"+strings.Repeat("d/", 3000)+"f", "x"))},
		{"huge file", "do not fit", huge(t)},
		{"huge sparse file", "more than 1100 times as many", sparseFile(t, 1<<60, 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			image, err := s.importData(t, tt.data)
			if err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Import = %v, %v; want one line with %q", image, err, tt.words)
			}
			s.checkOnly(t)
		})
	}
}

// chained is an archive with a file in a folder that so many links, each to the next, lead to.
func chained(t *testing.T, links int) []byte {
	t.Helper()
	files := []file{dir("rootfs"), dir(fmt.Sprintf("rootfs/%d", links))}
	for i := range links {
		files = append(files, link(tar.TypeSymlink, fmt.Sprintf("rootfs/%d", i), strconv.Itoa(i+1)))
	}
	return archive(t, testManifest, append(files, regular("rootfs/0/x", "x"))...)
}

func owned(uid, gid int) file {
	f := regular("rootfs/f", "x")
	f.Uid, f.Gid, f.Format = uid, gid, tar.FormatGNU
	return f
}

func TestTheHighestOwnerIsKept(t *testing.T) {
	image, err := newStore(t).importData(t, archive(t, testManifest, dir("rootfs"), owned(spec.MaxID, spec.MaxID)))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(image.Rootfs(), "f"), &st); err != nil || st.Uid != spec.MaxID || st.Gid != spec.MaxID {
		t.Errorf("owner %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// What an import remembers does not grow with what the archive repeats.
func TestImportIsBounded(t *testing.T) {
	surroundings.Root(t)
	data := archive(t, testManifest, dir("rootfs"), dir("rootfs/a"), dir("rootfs/a"), dir("rootfs/a/"), dir("rootfs/b"))
	tests := []struct {
		name           string
		entries, names int
		words          string
	}{
		{"enough", 6, 3, ""},
		{"too many entries", 5, 3, "more than 1048576 entries"},
		{"names too long", 6, 2, "longer than 67108864 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, err := Decompress(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			x, err := newExtractor(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer x.tree.close()
			x.entries, x.names = tt.entries, tt.names
			_, err = x.all(in)
			if tt.words == "" && (err != nil || len(x.folders) != 3) {
				t.Errorf("%d folders, %v", len(x.folders), err)
			}
			if tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)) {
				t.Errorf("%v, want %q", err, tt.words)
			}
		})
	}
}

// huge is an archive with the header of a file of 2^60 bytes.
func huge(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := tar.NewWriter(&out).WriteHeader(&tar.Header{Name: "rootfs/f", Size: 1 << 60}); err != nil {
		t.Fatal(err)
	}
	front := archive(t, testManifest, dir("rootfs"))
	return append(front[:len(front)-1024], out.Bytes()...) // without the end marker
}

// sparseFile is an archive of a few KiB with a file of that size, as GNU tar stores sparse files in PAX records. The
// file has a byte of data in so many blocks of 4 KiB.
func sparseFile(t *testing.T, size int64, blocks int) []byte {
	t.Helper()
	content := fmt.Appendf(nil, "%d\n", blocks)
	for i := range blocks {
		content = fmt.Appendf(content, "%d\n1\n", i<<12)
	}
	content = append(content, make([]byte, -len(content)&511)...)
	data := archive(t, testManifest, dir("rootfs"), file{Header: tar.Header{
		Typeflag: tar.TypeReg,
		Name:     "rootfs/GNUSparseFile.0/f",
		Mode:     0o644,
		Format:   tar.FormatPAX,
		// The writer takes no GNU.sparse records, so they go in under a name of the same length.
		PAXRecords: map[string]string{"GNX.sparse.major": "1", "GNX.sparse.minor": "0", "GNX.sparse.name": "rootfs/f", "GNX.sparse.realsize": fmt.Sprint(size)},
	}, content: string(content) + strings.Repeat("x", blocks)})
	return bytes.ReplaceAll(data, []byte("GNX.sparse"), []byte("GNU.sparse"))
}

// sparseFiles is a sparseFile that has its file so many times.
func sparseFiles(t *testing.T, n int, size int64, blocks int) []byte {
	t.Helper()
	front, whole := archive(t, testManifest, dir("rootfs")), sparseFile(t, size, blocks)
	front, end := front[:len(front)-1024], whole[len(whole)-1024:] // the end marker
	return slices.Concat(front, bytes.Repeat(whole[len(front):len(whole)-1024], n), end)
}

// A file that is replaced while it is read is not covered by the signature
// of what took its place.
func TestSignatureIsOfWhatWasExtracted(t *testing.T) {
	good := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "good"))
	path, ring := signedImage(t, good)
	if err := os.WriteFile(path, archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "evil")), 0o600); err != nil {
		t.Fatal(err)
	}
	swapped := false
	swap := func(int64, int64) {
		if !swapped {
			swapped = true
			if err := os.Rename(writeFile(t, "good.aci", good), path); err != nil {
				t.Error(err)
			}
		}
	}
	s := newStore(t)
	if image, err := s.Import(t.Context(), path, ring, swap); err == nil || !swapped {
		t.Errorf("swapped %v; %v", swapped, image)
	}
	s.checkOnly(t)
	image, err := s.Import(t.Context(), path, ring, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Signer(image, ring); err != nil {
		t.Error(err)
	}
}

// signedImage writes an image file and its signature, and returns the path and the ring with the key.
func signedImage(t *testing.T, data []byte) (path string, ring signing.KeyRing) {
	t.Helper()
	key, ring := newKey(t)
	return signedBy(t, key, data), ring
}

// newKey returns a key and a ring with it.
func newKey(t *testing.T) (*signing.Key, signing.KeyRing) {
	t.Helper()
	key, err := signing.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	var public bytes.Buffer
	if err := key.WritePublic(&public); err != nil {
		t.Fatal(err)
	}
	ring, err := signing.ReadKeyRing(writeFile(t, "key.asc", public.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return key, ring
}

// signedBy writes an image file and its signature, and returns the path.
func signedBy(t *testing.T, key *signing.Key, data []byte) (path string) {
	t.Helper()
	var sig bytes.Buffer
	if err := signing.Sign(&sig, bytes.NewReader(data), key); err != nil {
		t.Fatal(err)
	}
	path = writeFile(t, "image.aci", data)
	if err := os.WriteFile(path+".asc", sig.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An import of an image that is there keeps its files, so it must not succeed if a launch would refuse them.
func TestImportRefusesAnImageThatHasBeenAltered(t *testing.T) {
	surroundings.Root(t)
	for name, alter := range map[string]func(image *Image) error{
		"extra file":  func(i *Image) error { return os.WriteFile(filepath.Join(i.Rootfs(), "extra"), nil, 0o600) },
		"file's mode": func(i *Image) error { return os.Chmod(filepath.Join(i.Rootfs(), "f"), 0o755) },
		"manifest": func(i *Image) error {
			return os.WriteFile(filepath.Join(i.Dir, manifestFile), []byte(strings.Replace(testManifest, "/a", "/b", 1)), 0o600)
		},
		"missing file": func(i *Image) error { return os.Remove(filepath.Join(i.Rootfs(), "f")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			path, ring := signedImage(t, archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "good")))
			image, err := s.Import(t.Context(), path, ring, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Import(t.Context(), path, ring, nil); err != nil {
				t.Fatalf("again, unchanged: %v", err)
			}
			if err := alter(image); err != nil {
				t.Fatal(err)
			}
			for _, trusted := range []signing.KeyRing{ring, {}} {
				if _, err := s.Import(t.Context(), path, trusted, nil); err == nil || !strings.Contains(err.Error(), image.ID) || !strings.Contains(err.Error(), " altered since the import; remove the image and import it again") {
					t.Errorf("error %v", err)
				}
			}
			if err := removeOne(s, image.ID, unused); err != nil {
				t.Fatal(err)
			}
			if image, err = s.Import(t.Context(), path, ring, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Verify(image, ring); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExportReturnsTheIDOfTheFile exports images that the store keeps as files only.
func TestExportReturnsTheIDOfTheFile(t *testing.T) {
	surroundings.Root(t)
	var built bytes.Buffer
	if err := build.Write(&built, []byte(testManifest), nil); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		data []byte
		same bool
	}{
		"built by aci":     {built.Bytes(), true},
		"built otherwise":  {archive(t, testManifest, dir("rootfs"), owned(1, 1)), false},
		"an earlier mtime": {archive(t, testManifest, file{Header: tar.Header{Typeflag: tar.TypeDir, Name: "rootfs", Mode: 0o755, ModTime: time.Unix(9, 0)}}), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			image, err := s.importData(t, tt.data)
			if err != nil {
				t.Fatal(err)
			}
			to, err := os.OpenFile(filepath.Join(t.TempDir(), "file.aci"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			id, err := s.Export(image, to, NotCompressed, nil)
			if err != nil || (id == image.ID) != tt.same {
				t.Errorf("%s, %v; the image is %s", id, err, image.ID)
			}
			if again, err := s.Import(t.Context(), to.Name(), signing.KeyRing{}, nil); err != nil || again.ID != id {
				t.Errorf("imported as %v, %v; want %s", again, err, id)
			}
		})
	}
}

func TestImportNeedsARegularFile(t *testing.T) {
	s := newStore(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, t.TempDir(), "/dev/zero", "/nonexistent"} {
		if _, err := s.Import(t.Context(), path, signing.KeyRing{}, nil); err == nil {
			t.Errorf("%s is imported", path)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	path := writeFile(t, "a", archive(t, testManifest, dir("rootfs")))
	if err := unix.Mkfifo(path+".asc", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(t.Context(), path, signing.KeyRing{}, nil); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a FIFO for a signature: %v", err)
	}
	if err := os.Remove(path + ".asc"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(ended, path, signing.KeyRing{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
	s.checkOnly(t)
}

func TestImportKeepsFilesAsTheyAre(t *testing.T) {
	old := time.Unix(1, 5000)
	head := func(kind byte, name string, mode int64, uid, gid int) file {
		return file{Header: tar.Header{Typeflag: kind, Name: name, Mode: mode, Uid: uid, Gid: gid, ModTime: old, Format: tar.FormatPAX}}
	}
	setuid := head(tar.TypeReg, "rootfs/d/setuid", 0o4755, 5, 6)
	setuid.content = "x"
	setuid.PAXRecords = map[string]string{
		"SCHILY.xattr.user.note":           "a=b\nc",
		"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	}
	char := head(tar.TypeChar, "rootfs/null", 0o666, 0, 0)
	char.Devmajor, char.Devminor = 1, 3
	symlink := head(tar.TypeSymlink, "rootfs/symlink", 0o777, 7, 8)
	symlink.Linkname = "/somewhere else"
	s := newStore(t)
	image, err := s.importData(t, archive(t, testManifest,
		head(tar.TypeDir, "rootfs/", 0o1750, 1, 2), head(tar.TypeDir, "rootfs/d", 0o2711, 3, 4), setuid, char, symlink,
		head(tar.TypeFifo, "rootfs/fifo", 0o600, 9, 9), link(tar.TypeLink, "rootfs/hard", "rootfs/d/setuid"),
		regular("rootfs/odd:, \\\n", "odd"), dir("rootfs/was"), regular("rootfs/was/gone", "x"), regular("rootfs/was", "now a file")))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		mode     uint32
		uid, gid uint32
	}{
		{"", unix.S_IFDIR | 0o1750, 1, 2},
		{"d", unix.S_IFDIR | 0o2711, 3, 4},
		{"d/setuid", unix.S_IFREG | 0o4755, 5, 6},
		{"null", unix.S_IFCHR | 0o666, 0, 0},
		{"symlink", unix.S_IFLNK | 0o777, 7, 8},
		{"fifo", unix.S_IFIFO | 0o600, 9, 9},
		{"hard", unix.S_IFREG | 0o4755, 5, 6},
	}
	for _, tt := range tests {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(image.Rootfs(), tt.name), &st); err != nil {
			t.Fatal(err)
		}
		if st.Mode != tt.mode || st.Uid != tt.uid || st.Gid != tt.gid {
			t.Errorf("/%s: mode %o, owner %d:%d; want %o, %d:%d", tt.name, st.Mode, st.Uid, st.Gid, tt.mode, tt.uid, tt.gid)
		}
		if st.Mtim.Sec != 1 || st.Mtim.Nsec != 5000 {
			t.Errorf("/%s: time %d.%09d", tt.name, st.Mtim.Sec, st.Mtim.Nsec)
		}
		if tt.name == "hard" && st.Nlink != 2 || tt.name == "null" && st.Rdev != unix.Mkdev(1, 3) {
			t.Errorf("/%s: %d links, device %d", tt.name, st.Nlink, st.Rdev)
		}
	}
	for name, want := range setuid.PAXRecords {
		value := make([]byte, 100)
		n, err := unix.Lgetxattr(filepath.Join(image.Rootfs(), "d/setuid"), strings.TrimPrefix(name, "SCHILY.xattr."), value)
		if err != nil || string(value[:n]) != want {
			t.Errorf("%s: %q, %v", name, value[:max(n, 0)], err)
		}
	}
	for name, want := range map[string]string{"odd:, \\\n": "odd", "was": "now a file"} {
		if data, err := os.ReadFile(filepath.Join(image.Rootfs(), name)); string(data) != want {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
}

// Folders that an archive only implies are as the umask of no importer has them.
func TestImpliedFoldersHaveNoUmask(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	s := newStore(t)
	data := archive(t, testManifest, regular("rootfs/d/e/f", "x"))
	image, err := s.importData(t, data)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "d", "d/e"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(image.Rootfs(), name), &st); err != nil || st.Mode != unix.S_IFDIR|0o755 {
			t.Errorf("/%s: %o, %v", name, st.Mode, err)
		}
	}
	unix.Umask(0o022)
	path, ring := signedImage(t, data)
	if _, err := s.Import(t.Context(), path, ring, nil); err != nil {
		t.Errorf("the same image with a signature: %v", err)
	}
}

func TestASymlinkInPlaceOfAFolderIsReplaced(t *testing.T) {
	s := newStore(t)
	image, err := s.importData(t, archive(t, testManifest, dir("rootfs"), dir("rootfs/usr"), dir("rootfs/usr/lib"),
		link(tar.TypeSymlink, "rootfs/lib", "usr/lib"), regular("rootfs/lib/through", "x"), dir("rootfs/lib"), regular("rootfs/lib/after", "x")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"usr/lib/through", "lib/after"} {
		if _, err := os.Lstat(filepath.Join(image.Rootfs(), name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Join(image.Rootfs(), "usr/lib/after")); err == nil {
		t.Error("the symlink was followed")
	}
}

func TestCollectLeavesLiveImportsAlone(t *testing.T) {
	s := newStore(t)
	live, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	dead, err := s.newTemp()
	if err != nil {
		t.Fatal(err)
	}
	if err := dead.lock.Close(); err != nil { // what a kill does
		t.Fatal(err)
	}
	for want := 1; want >= 0; want-- {
		if n, err := s.Collect(); n != want || err != nil {
			t.Errorf("Collect = %d, %v; want %d", n, err, want)
		}
	}
	if _, err := os.Stat(live.dir); err != nil {
		t.Error(err)
	}
	live.discard()
	s.checkOnly(t)
}

func TestImagesAreFoundAndRemoved(t *testing.T) {
	s := newStore(t)
	ids := map[string]string{}
	for _, version := range []string{"1", "2"} {
		image, err := s.importData(t, archive(t, strings.Replace(testManifest, `"value":"1"`, `"value":"`+version+`"`, 1), dir("rootfs")))
		if err != nil {
			t.Fatal(err)
		}
		ids[version] = image.ID
	}
	tests := []struct{ ref, want string }{
		{"example.com/a", ids["2"]},
		{"example.com/a:1", ids["1"]},
		{ids["1"], ids["1"]},
		{ids["2"][:20], ids["2"]},
		{"example.com/a:3", ""},
		{"example.com/b", ""},
		{"sha512-", ""},
		{"../../etc", ""},
	}
	for _, tt := range tests {
		image, err := s.Catalog(signing.KeyRing{}, nil).Find(tt.ref)
		if tt.want == "" && !errors.Is(err, ErrNotFound) || tt.want != "" && (err != nil || image.ID != tt.want) {
			t.Errorf("Find(%q) = %v, %v", tt.ref, image, err)
		}
	}
	if err := removeOne(s, ids["1"], unused); err != nil {
		t.Error(err)
	}
	if err := removeOne(s, ids["1"], unused); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	s.checkOnly(t, ids["2"])
}

// People name an image of Docker's registry as Docker prints it; an image of that very name comes first.
func TestShortNamesAreDockers(t *testing.T) {
	s := newStore(t)
	ids := map[string]string{}
	add := func(name string) {
		t.Helper()
		image, err := s.importData(t, archive(t, strings.Replace(testManifest, "example.com/a", name, 1), dir("rootfs")))
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = image.ID
	}
	find := func(ref, want string) {
		t.Helper()
		if id, err := s.Catalog(signing.KeyRing{}, nil).FindID(ref); id != ids[want] || (want == "") != errors.Is(err, ErrNotFound) {
			t.Errorf("FindID(%q) = %q, %v; want %q", ref, id, err, want)
		}
	}
	add("docker.io/library/redis")
	add("docker.io/team/app")
	add("docker.io/example.com/a")
	find("redis", "docker.io/library/redis")
	find("redis:1", "docker.io/library/redis")
	find("team/app:1", "docker.io/team/app")
	for _, ref := range []string{"redis:2", "redi", "app", "example.com/a", "localhost/redis", "", ":1"} {
		find(ref, "")
	}
	add("redis")
	find("redis", "redis")
	find("redis:2", "")
}

func unused() error { return nil }

// removeOne removes an image unless check returns an error.
func removeOne(s *Store, id string, check func() error) error {
	_, err := s.Remove(context.Background(), func(all []*Image, _ Imports) ([]*Image, error) {
		i := slices.IndexFunc(all, func(image *Image) bool { return image.ID == id })
		if i < 0 {
			return nil, ErrNotFound
		}
		return all[i : i+1], check()
	})
	return err
}

func TestRemoveChecksWhileNoImageIsPinned(t *testing.T) {
	s := newStore(t)
	image, err := s.importData(t, archive(t, testManifest, dir("rootfs")))
	if err != nil {
		t.Fatal(err)
	}
	release, err := s.Pin()
	if err != nil {
		t.Fatal(err)
	}
	pod := make(chan string, 1) // made by who has pinned
	used := errors.New("used")
	removed := make(chan error)
	go func() {
		removed <- removeOne(s, image.ID, func() error {
			select {
			case <-pod:
				return used
			default:
				return nil
			}
		})
	}()
	again, err := s.Pin() // several may
	if err != nil {
		t.Fatal(err)
	}
	again()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Remove(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a removal that may wait for a millisecond: %v", err)
	}
	pod <- "p"
	release()
	if err := <-removed; !errors.Is(err, used) {
		t.Errorf("%v", err)
	}
	s.checkOnly(t, image.ID)
}

// The removal of an image is the cure for a full disk.
func TestAnImageIsRemovedFromAFullDisk(t *testing.T) {
	s := newStore(t)
	if err := errors.Join(os.Mkdir(s.dir, 0o700), unix.Mount("tmpfs", s.dir, "tmpfs", 0, "nr_inodes=20")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(s.dir, 0); err != nil {
			t.Error(err)
		}
	}()
	image, err := s.importData(t, archive(t, testManifest, dir("rootfs")))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(image.Rootfs(), strconv.Itoa(i)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := removeOne(s, image.ID, unused); err != nil {
		t.Error(err)
	}
	s.checkOnly(t)
}

func FuzzImport(f *testing.F) {
	t := &testing.T{}
	plain := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "content"))
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write(plain)
	_ = w.Close()
	f.Add(plain)
	f.Add(zipped.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		s := Open(filepath.Join(t.TempDir(), "images"))
		if image, err := s.importData(t, data); err == nil {
			s.checkOnly(t, image.ID)
		} else {
			s.checkOnly(t)
		}
	})
}

// Two launchers may check one stager image at the same time.
func TestRecordIsWrittenBySeveralAtOnce(t *testing.T) {
	s := newStore(t)
	path, ring := signedImage(t, archive(t, testManifest, dir("rootfs")))
	image, err := s.Import(t.Context(), path, ring, nil)
	if err == nil { // breaks the seal
		err = os.Chtimes(filepath.Join(image.Dir, sigFile), time.Time{}, time.Unix(1, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	const writers = 8
	for range writers {
		own := *image
		go func() {
			var err error
			for range 10 {
				own.Record = image.Record // each check reads the file again
				_, signed := s.Signer(&own, ring)
				err = errors.Join(err, signed)
			}
			errs <- err
		}()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if left, err := s.Unfinished(); left != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
}
