package sources

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

// archiveFile writes a compressed OCI archive with files of so many bytes, beside those by which it is recognized.
func archiveFile(t *testing.T, sizes ...int) (path string) {
	t.Helper()
	var packed bytes.Buffer
	compressed := gzip.NewWriter(&packed)
	w := tar.NewWriter(compressed)
	for i, size := range append([]int{2, 2}, sizes...) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("blobs/%d", i), Mode: 0o644, Size: int64(size)}
		if i < 2 {
			header.Name = []string{layoutFile, layoutIndex}[i]
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(bytes.Repeat([]byte("{}"), size/2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "archive.tar.gz")
	if err := os.WriteFile(path, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An archive of a few KiB neither fills the disk nor its inodes.
func TestAnArchiveHasLimits(t *testing.T) {
	surroundings.Root(t)
	half := 512 << 10
	for _, tt := range []struct {
		name, words string
		sizes       []int
	}{
		{"within them", "0 images for this machine", []int{half}},
		{"one file too large", "the archive has more bytes than maxImageSize in the configuration, 1048576", []int{3 * half}},
		{"all files too large", "the archive has more bytes than maxImageSize in the configuration, 1048576", []int{half, half, half}},
		{"too many files", "the archive has more than 1600 files", make([]int, 4*maxLayers)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFetcher(t)
			f.MaxSize = 1 << 20
			if _, err := f.Import(t.Context(), archiveFile(t, tt.sizes...)); err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%v, want %q", err, tt.words)
			}
			f.checkCache(t)
		})
	}
}

// No archive fills the disk or makes folders without end, whatever its headers claim.
func TestAnArchiveIsNotLargerThanItLooks(t *testing.T) {
	t.Setenv("TMPDIR", "/dev/shm") // a disk's file system takes milliseconds for a folder
	var names []string
	for i := range 41 {
		names = append(names, fmt.Sprintf("%d/%sf", i, strings.Repeat("d/", 100)))
	}
	within, _ := layerOf(t, names[1:]...)
	beyond, _ := layerOf(t, names...)
	for _, tt := range []struct {
		name, words string
		data        []byte
		free        int64
	}{
		{"deep paths", "", within, 0},
		{"one more", "more than 4096 folders are on the way to the archive's files", beyond, 0},
		{"a sparse file", `"f": a sparse file`, sparseFile(t, "1048576"), 1 << 30},
		{"enough space", "", aci(t, 1000), 2000},
		{"no space", "or than are free, 1000", aci(t, 1000), 1000},
	} {
		f := newFetcher(t)
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		err = f.fill(root, tar.NewReader(bytes.NewReader(tt.data)), layoutIndex, tt.free)
		if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.words)
		}
	}
}

// A layout's files are what its manifest says, and in its folder.
func TestABlobIsChecked(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "layout")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "blob"), []byte("text"), 0o644),
		os.WriteFile(filepath.Join(outside, "secret"), []byte("text"), 0o644), os.Symlink("../secret", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("text")))
	for _, tt := range []struct {
		name, file, digest string
		size               int64
		words              string
	}{
		{"right", "blob", digest, 4, ""},
		{"of any size and content", "blob", "", -1, ""},
		{"another size", "blob", digest, 5, "4 bytes, not 5"},
		{"another content", "blob", strings.Replace(digest, "sha256:", "sha256:0", 1), 4, "digest sha256:"},
		{"a link to another folder", "link", digest, 4, "escapes"},
		{"another folder", "../secret", digest, 4, "escapes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, done, err := openBlob(t.Context(), dir, tt.file, tt.digest, tt.size)
			if err == nil {
				done()
			}
			if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%v, want %q", err, tt.words)
			}
		})
	}
}

// An OCI layout's documents are files of the layout of moderate size.
func TestALayoutsDocumentsAreItsOwn(t *testing.T) {
	index := func(digest string, size int) string {
		return fmt.Sprintf(`{"schemaVersion": 2, "manifests": [{"mediaType": %q, "size": %d, "digest": %q}]}`, manifestType, size, digest)
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	manifest := `{"schemaVersion": 2, "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "size": -1, "digest": "` + digest + `"}}`
	ofManifest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(manifest)))
	for name, tt := range map[string]struct {
		index, blob tar.Header
		content     map[string]string
		words       string
	}{
		"index is a link":           {tar.Header{Typeflag: tar.TypeSymlink, Linkname: "/dev/zero"}, tar.Header{Typeflag: tar.TypeReg}, nil, `"index.json": a link in an OCI layout`},
		"manifest is a link":        {tar.Header{Typeflag: tar.TypeReg}, tar.Header{Typeflag: tar.TypeSymlink, Linkname: "/dev/zero"}, map[string]string{"index": index(digest, 1)}, "a link in an OCI layout"},
		"large index":               {tar.Header{Typeflag: tar.TypeReg}, tar.Header{Typeflag: tar.TypeReg}, map[string]string{"index": strings.Repeat(" ", maxConfig+1)}, "more than 8388608"},
		"large manifest":            {tar.Header{Typeflag: tar.TypeReg}, tar.Header{Typeflag: tar.TypeReg}, map[string]string{"index": index(digest, maxConfig+1), "blob": strings.Repeat(" ", maxConfig+1)}, "manifest of 8388609 bytes, not 0 to 8388608"},
		"no manifest":               {tar.Header{Typeflag: tar.TypeReg}, tar.Header{Typeflag: tar.TypeReg, Name: "other"}, map[string]string{"index": index(digest, 1)}, "no such file"},
		"configuration of any size": {tar.Header{Typeflag: tar.TypeReg}, tar.Header{Typeflag: tar.TypeReg, Name: blobName(ofManifest)}, map[string]string{"index": index(ofManifest, len(manifest)), "blob": manifest}, "configuration of -1 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "layout.tar")
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, e := range []struct {
			header        tar.Header
			name, content string
		}{
			{tar.Header{Typeflag: tar.TypeReg}, layoutFile, "{}"},
			{tt.index, layoutIndex, tt.content["index"]},
			{tt.blob, blobName(digest), tt.content["blob"]},
		} {
			if e.header.Name == "" {
				e.header.Name = e.name
			}
			e.header.Size = int64(len(e.content))
			if err := w.WriteHeader(&e.header); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(e.content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), os.WriteFile(path, archive.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		f := newFetcher(t)
		if _, err := f.Import(t.Context(), path); err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %q", name, err, tt.words)
		}
		f.checkCache(t)
	}
	dir := t.TempDir()
	if err := errors.Join(os.Symlink("/dev/zero", filepath.Join(dir, layoutIndex)), os.WriteFile(filepath.Join(dir, layoutFile), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := newFetcher(t).Import(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "index.json: path escapes") {
		t.Errorf("a folder: %v", err)
	}
}

// A document of an archive is of moderate size.
func TestALargeDocumentIsRefused(t *testing.T) {
	dir := t.TempDir()
	for size, words := range map[int]string{maxConfig: "", maxConfig + 1: "read manifest.json: more than 8388608 bytes"} {
		text := "[" + strings.Repeat(" ", size-2) + "]"
		if err := os.WriteFile(filepath.Join(dir, dockerManifest), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := readJSON(dir, dockerManifest, &[]string{})
		if (err == nil) != (words == "") || err != nil && err.Error() != words {
			t.Errorf("%d bytes: %v, want %q", size, err, words)
		}
	}
}
