package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/signing"
	"kurma.io/stager/tests/surroundings"
)

// importing has the test binary import the file that it names into the store that is its
// first argument, so that the test can measure a process that does nothing else.
const importing = "IMAGES_TEST_IMPORT"

func TestMain(m *testing.M) {
	path := os.Getenv(importing)
	if path == "" {
		surroundings.Settle()
		os.Exit(m.Run())
	}
	_, err := Open(os.Args[1]).Import(context.Background(), path, signing.KeyRing{}, nil)
	status, readErr := os.ReadFile("/proc/self/status")
	if readErr != nil {
		panic(readErr)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Fprintln(os.Stdout, strings.Fields(peak)[0])
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// hostile is an archive that is made to cost more than it is worth.
type hostile struct {
	name  string
	words string // of the error; "" for an archive that is imported
	data  func(t *testing.T) []byte
}

// manyAttributes is a hostile archive that only a disk's file system refuses.
const manyAttributes = "5000 extended attributes"

// The limits of the process that imports a hostile archive of at most 1 MiB, Go's own start
// included. Most take a tenth of that.
const (
	hostileCPU    = 8         // times what an honest image with a file of 100 MB takes in the same test
	hostileMemory = 256 << 10 // KiB
)

// importAlone imports an archive in a process of its own. It returns what that process has printed,
// and how much CPU and memory, in KiB, it has used.
func importAlone(t *testing.T, s *Store, data []byte) (message string, cpu time.Duration, memory int, err error) {
	cmd := exec.Command(os.Args[0], s.dir)
	cmd.Env = append(os.Environ(), importing+"="+writeFile(t, "image.aci", data))
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	memory, numberErr := strconv.Atoi(strings.TrimSpace(stdout.String()))
	if numberErr != nil {
		t.Fatal(numberErr)
	}
	return stderr.String(), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), memory, err
}

// No archive takes much more than an honest one. The stores are in memory: a disk's file system takes up to ten times as
// much CPU time for a folder on some days.
func TestHostileArchivesTakeLittle(t *testing.T) {
	disk := os.TempDir()
	t.Setenv("TMPDIR", memoryDir(t))
	honest := zipped(archive(t, testManifest, dir("rootfs"), regular("rootfs/f", strings.Repeat("x", 100<<20))))
	_, honestCPU, _, err := importAlone(t, newStore(t), honest)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range append(hostileTrees(), append(hostileFormats(), hostileContents()...)...) {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == manyAttributes {
				t.Setenv("TMPDIR", disk)
			}
			data := tt.data(t)
			if len(data) > 1<<20 {
				t.Fatalf("the archive has %d bytes", len(data))
			}
			s := newStore(t)
			message, cpu, memory, err := importAlone(t, s, data)
			if (err == nil) != (tt.words == "") || !strings.Contains(message, tt.words) || strings.Contains(message, "\n") || len(message) > 1000 {
				t.Errorf("import: %v, %q; want one line with %q", err, shorten(message), tt.words)
			}
			t.Logf("%d bytes: %v, %d KiB: %s", len(data), cpu.Round(time.Millisecond), memory, shorten(message))
			if cpu > hostileCPU*honestCPU || memory > hostileMemory {
				t.Errorf("%d bytes take %v of CPU, an honest image %v, and %d KiB", len(data), cpu, honestCPU, memory)
			}
			if err != nil {
				s.checkOnly(t)
			}
		})
	}
}

// memoryDir returns a new folder on a tmpfs.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "images")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// hostileTrees are archives whose paths and links lead far.
func hostileTrees() []hostile {
	deep := strings.Repeat("d/", 2000)
	many := func(name func(i int) string) func(*testing.T) []byte {
		return func(t *testing.T) []byte {
			files := []file{dir("rootfs")}
			for i := range 200 {
				files = append(files, regular("rootfs/"+name(i), "x"))
			}
			return zipped(archive(t, testManifest, files...))
		}
	}
	return []hostile{
		{"deep paths, each its own", "are not in the archive", many(func(i int) string { return fmt.Sprintf("%d/%sf", i, deep) })},
		{"one deep path", "", many(func(i int) string { return fmt.Sprintf("%sf%d", deep, i) })},
		{"two deep paths in turn", "", many(func(i int) string { return fmt.Sprintf("%d/%sf%d", i%2, deep, i) })},
		{"deep paths replaced", "are not in the archive", func(t *testing.T) []byte {
			files := []file{dir("rootfs")}
			for range 100 {
				files = append(files, regular("rootfs/"+deep+"f", "x"), regular("rootfs/d", "x"), dir("rootfs/d"))
			}
			return zipped(archive(t, testManifest, files...))
		}},
		{"each folder of a deep path", "", func(t *testing.T) []byte {
			files := []file{dir("rootfs")}
			for i := range 1000 {
				files = append(files, dir("rootfs/"+deep[:2*i+1]))
			}
			return zipped(archive(t, testManifest, files...))
		}},
		{"a long link, passed often", "symbolic links of more than 64 names", through(2000)},
		{"a link of the most names, passed often", "", through(64)},
		{"links in a ring", "symbolic links of more than 64 names", func(t *testing.T) []byte {
			return archive(t, testManifest, dir("rootfs"), link(tar.TypeSymlink, "rootfs/a", "b"), link(tar.TypeSymlink, "rootfs/b", "a"), regular("rootfs/a/f", "x"))
		}},
		{"a link to the folder above, passed often", "escapes", func(t *testing.T) []byte {
			return archive(t, testManifest, dir("rootfs"), dir("rootfs/d"), link(tar.TypeSymlink, "rootfs/d/up", "../.."), regular("rootfs/d/up/f", "x"))
		}},
		{"a hard link to itself", "hard link to itself", func(t *testing.T) []byte {
			return archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "x"), link(tar.TypeLink, "rootfs/f", "rootfs/f"))
		}},
		{"a hard link to a folder", "not permitted", func(t *testing.T) []byte {
			return archive(t, testManifest, dir("rootfs"), dir("rootfs/d"), link(tar.TypeLink, "rootfs/f", "rootfs/d"))
		}},
		{"hard links to one file", "", func(t *testing.T) []byte {
			files := []file{dir("rootfs"), regular("rootfs/f", "x")}
			for i := range 5000 {
				files = append(files, link(tar.TypeLink, fmt.Sprintf("rootfs/%d", i), "rootfs/f"))
			}
			return zipped(archive(t, testManifest, files...))
		}},
		{"one file, over and over", "", func(t *testing.T) []byte {
			return zipped(archive(t, testManifest, append([]file{dir("rootfs")}, repeat(5000, regular("rootfs/f", "x"))...)...))
		}},
	}
}

// through makes an archive of 1000 files, whose paths pass through a symbolic link of that
// many names.
func through(names int) func(t *testing.T) []byte {
	return func(t *testing.T) []byte {
		files := []file{dir("rootfs"), link(tar.TypeSymlink, "rootfs/l", strings.Repeat("d/", names)[:2*names-1]), dir("rootfs/e")}
		for i := range 1000 {
			files = append(files, regular(fmt.Sprintf("rootfs/l/f%d", i), "x"), regular(fmt.Sprintf("rootfs/e/f%d", i), "x"))
		}
		return zipped(archive(t, testManifest, files...))
	}
}

func repeat(n int, f file) []file {
	files := make([]file, n)
	for i := range files {
		files[i] = f
	}
	return files
}

// hostileFormats are files that are cut off, longer than they say, or expand to much.
func hostileFormats() []hostile {
	sound := func(t *testing.T) []byte { return archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "x")) }
	return []hostile{
		{"gzip bomb", "", func(t *testing.T) []byte { return zipped(archive(t, testManifest, dir("rootfs"), zeros(100<<20))) }},
		{"bzip2 bomb", "more than 1100 times as many", func(t *testing.T) []byte {
			return piped(t, "bzip2", archive(t, testManifest, dir("rootfs"), zeros(100<<20)))
		}},
		{"xz bomb", "more than 1100 times as many", func(t *testing.T) []byte {
			return piped(t, "xz", archive(t, testManifest, dir("rootfs"), zeros(100<<20)))
		}},
		{"zstd bomb", "more than 1100 times as many", func(t *testing.T) []byte {
			return piped(t, "zstd", archive(t, testManifest, dir("rootfs"), regular("rootfs/f", strings.Repeat("x", 150<<20))))
		}},
		{"xz blocks with dictionaries of 4 GiB", "more than 1100 times as many", xzDictionaries},
		{"manifest of 100 MB", "want a file of at most", func(t *testing.T) []byte {
			return zipped(archive(t, strings.Repeat(" ", 100<<20), dir("rootfs")))
		}},
		{"padding of 100 MB", "", func(t *testing.T) []byte { return zipped(append(sound(t), make([]byte, 100<<20)...)) }},
		{"data after the end marker", "data follows its end marker", func(t *testing.T) []byte { return append(sound(t), 0, 0, 'x') }},
		{"an archive after the end marker", "data follows its end marker", func(t *testing.T) []byte { return append(sound(t), sound(t)...) }},
		{"data after the gzip stream", "gzip: invalid header", func(t *testing.T) []byte { return append(zipped(sound(t)), "trailing data"...) }},
		{"no end marker", "", func(t *testing.T) []byte { return sound(t)[:len(sound(t))-1024] }},
		{"half an end marker", "", func(t *testing.T) []byte { return sound(t)[:len(sound(t))-512] }},
		{"cut off in a file", "unexpected EOF", func(t *testing.T) []byte { return sound(t)[:len(sound(t))-1024-512] }},
		{"cut off in a header", "unexpected EOF", func(t *testing.T) []byte { return sound(t)[:len(sound(t))-2000] }},
		{"compressed stream cut off", "unexpected EOF", func(t *testing.T) []byte { return zipped(sound(t))[:100] }},
		{"gzip in gzip", "read archive", func(t *testing.T) []byte { return zipped(zipped(sound(t))) }},
	}
}

// hostileContents are entries that ask for more than they have.
func hostileContents() []hostile {
	with := func(records map[string]string) func(*testing.T) []byte {
		return func(t *testing.T) []byte {
			f := regular("rootfs/f", "x")
			f.Format, f.PAXRecords = tar.FormatPAX, records
			return zipped(archive(t, testManifest, dir("rootfs"), f))
		}
	}
	xattrs := map[string]string{}
	for i := range 5000 {
		xattrs[fmt.Sprintf("SCHILY.xattr.user.%d", i)] = strings.Repeat("x", 60)
	}
	return []hostile{
		{"sparse file of 2^60 bytes", "more than 1100 times as many", func(t *testing.T) []byte { return sparseFile(t, 1<<60, 0) }},
		{"sparse file of 2 GiB", "more than 1100 times as many", func(t *testing.T) []byte { return sparseFile(t, 2<<30, 0) }},
		{"sparse file of 1 GiB", "", func(t *testing.T) []byte { return sparseFile(t, 1<<30, 0) }},
		{"sparse files of many single bytes", "more than 1100 times as many", func(t *testing.T) []byte {
			return piped(t, "zstd", sparseFiles(t, 200, 4<<20, 1000))
		}},
		{manyAttributes, "set attribute", with(xattrs)},
		{"an extended attribute of 900 KB", "set attribute", with(map[string]string{"SCHILY.xattr.user.x": strings.Repeat("x", 900_000)})},
		{"an extended attribute of no kind", "set attribute", with(map[string]string{"SCHILY.xattr.nothing": "x"})},
		{"an extended attribute with a long name", "set attribute", with(map[string]string{"SCHILY.xattr.user." + strings.Repeat("x", 900_000): "x"})},
		{"device number too large", "want numbers up to", func(t *testing.T) []byte {
			return archive(t, testManifest, dir("rootfs"), file{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "rootfs/d", Devmajor: 1 << 20, Format: tar.FormatGNU}})
		}},
		{"1000 devices", "", func(t *testing.T) []byte {
			files := []file{dir("rootfs")}
			for i := range 1000 {
				files = append(files, file{Header: tar.Header{Typeflag: tar.TypeChar, Name: fmt.Sprintf("rootfs/%d", i), Devmajor: 1, Devminor: 3}})
			}
			return zipped(archive(t, testManifest, files...))
		}},
	}
}

func zeros(n int) file { return regular("rootfs/zeros", string(make([]byte, n))) }

func zipped(data []byte) []byte {
	var buf bytes.Buffer
	w, _ := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	_, _ = w.Write(data)
	_ = w.Close()
	return buf.Bytes()
}

func piped(t *testing.T, program string, data []byte) []byte {
	t.Helper()
	cmd := exec.Command(program, "-1")
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// xzDictionaries is an xz file of many small blocks, each of which asks for a
// dictionary of 4 GiB.
func xzDictionaries(t *testing.T) []byte {
	cmd := exec.Command("xz", "-T1", "--block-size=4096")
	cmd.Stdin = bytes.NewReader(archive(t, testManifest, dir("rootfs"), zeros(100*4096)))
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for i := 12; i+12 <= len(out); i += 4 {
		// A header of this shape has no sizes and one filter, LZMA2.
		header := out[i : i+12]
		if header[0] != 2 || header[1] != 0 || header[2] != 0x21 || binary.LittleEndian.Uint32(header[8:]) != crc32.ChecksumIEEE(header[:8]) {
			continue
		}
		header[4] = 40
		binary.LittleEndian.PutUint32(header[8:], crc32.ChecksumIEEE(header[:8]))
		blocks++
	}
	if blocks < 50 {
		t.Fatalf("found %d block headers", blocks)
	}
	return out
}

// The test imports every beginning of an archive. Only one that ends with an entry may be an image: it has no end marker, and the record
// says so. The last of its blocks may lack padding.
func TestATruncatedArchiveIsRefused(t *testing.T) {
	surroundings.Root(t)
	whole := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "content"), link(tar.TypeSymlink, "rootfs/l", "f"))
	ends := []int{1536, 2304, 2560, 3072, 3584} // the folder, the file in its padding and after it, the link, and half an end marker
	for n := 0; n < len(whole); n += 256 {
		_, record, err := unpack(t.TempDir(), bytes.NewReader(whole[:n]))
		if want := slices.Contains(ends, n); (err == nil) != want || err == nil && !record.Unmarked {
			t.Errorf("the first %d of %d bytes: %+v, %v", n, len(whole), record, err)
		}
	}
	if _, record, err := unpack(t.TempDir(), bytes.NewReader(whole)); err != nil || record.Unmarked {
		t.Errorf("%+v, %v", record, err)
	}
}

// TestXZIsPassedThrough reads files of one and of several blocks and streams.
func TestXZIsPassedThrough(t *testing.T) {
	plain := bytes.Repeat([]byte("some text, "), 20000)
	for _, streams := range [][]string{{"-9e"}, {"-T2 --block-size=10000 --lzma2=dict=64KiB"}, {"-0 --check=none", "-3", "--check=sha256 -1"}} {
		var file, want []byte
		for _, args := range streams {
			cmd := exec.Command("xz", strings.Fields(args)...)
			cmd.Stdin = bytes.NewReader(plain)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			file, want = append(append(file, out...), 0, 0, 0, 0), append(want, plain...)
		}
		in, err := Decompress(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || !bytes.Equal(got, want) {
			t.Errorf("xz %q: %d bytes, %v; want %d", streams, len(got), err, len(want))
		}
	}
}

// FuzzArchive makes archives of a few names and checks that nothing outside of the root
// changes, whatever they contain. Each three bytes are an entry: kind, name, target.
func FuzzArchive(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 2, 5, 1, 3, 0})
	f.Add([]byte{2, 0, 6, 1, 3, 0, 3, 1, 4, 0, 0, 0})
	names := []string{"a", "b", "a/b", "b/a", "a/a/a", "..", "../..", "/tmp", "a/../../..", ".", "rootfs/a", "a/b/../../b"}
	f.Fuzz(func(t *testing.T, ops []byte) {
		var files []file
		for ; len(ops) >= 3; ops = ops[3:] {
			name, target := names[int(ops[1])%len(names)], names[int(ops[2])%len(names)]
			kinds := []byte{tar.TypeDir, tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo}
			entry := link(kinds[int(ops[0])%len(kinds)], "rootfs/"+name, target)
			if entry.Typeflag == tar.TypeLink {
				entry.Linkname = "rootfs/" + target
			}
			files = append(files, entry)
		}
		base := t.TempDir()
		inside := filepath.Join(base, "in")
		if err := os.Mkdir(inside, 0o755); err != nil {
			t.Fatal(err)
		}
		_, _, err := unpack(inside, bytes.NewReader(archive(t, testManifest, append([]file{dir("rootfs")}, files...)...)))
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %v", err)
		}
		for folder, want := range map[string]int{base: 1, inside: 2} {
			if left, err := os.ReadDir(folder); err != nil || len(left) != want {
				t.Errorf("%v in %s, %v", left, folder, err)
			}
		}
	})
}
