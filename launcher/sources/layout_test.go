package sources

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// writeBlob writes a file of a layout, and returns its descriptor.
func writeBlob(t *testing.T, layout, kind, content string) string {
	t.Helper()
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(content)))
	path := filepath.Join(layout, blobName(digest))
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"mediaType": %q, "digest": %q, "size": %d}`, kind, digest, len(content))
}

// writeIndex makes a layout of the one image or index with that descriptor.
func writeIndex(t *testing.T, layout, descriptor string) {
	t.Helper()
	for name, content := range map[string]string{layoutFile: `{"imageLayoutVersion": "1.0.0"}`, layoutIndex: indexOf(descriptor)} {
		if err := os.WriteFile(filepath.Join(layout, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func indexOf(descriptor string) string {
	return `{"schemaVersion": 2, "manifests": [` + descriptor + `]}`
}

func manifestOf(config string) string {
	return fmt.Sprintf(`{"schemaVersion": 2, "mediaType": %q, "config": %s, "layers": []}`, manifestType, config)
}

// Every document of a layout has its digest, and a layout does not make the launcher wait or read without end.
func TestADocumentOfALayoutHasItsDigest(t *testing.T) {
	surroundings.Root(t)
	sound := func(t *testing.T, dir string) (config, manifest string) {
		config = writeBlob(t, dir, configType, `{"rootfs": {"type": "layers"}, "config": {"Cmd": ["/x"]}}`)
		return config, writeBlob(t, dir, manifestType, manifestOf(config))
	}
	replace := func(t *testing.T, dir, descriptor string, with func(path string) error) {
		t.Helper()
		_, digest, _ := strings.Cut(descriptor, `"digest": "`)
		path := filepath.Join(dir, blobName(digest[:len("sha256:")+64]))
		if err := errors.Join(os.Remove(path), with(path)); err != nil {
			t.Fatal(err)
		}
	}
	indexes := func(levels int) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			_, top := sound(t, dir)
			for range levels {
				top = writeBlob(t, dir, indexType, indexOf(top))
			}
			writeIndex(t, dir, top)
		}
	}
	for _, tt := range []struct {
		name, words string
		write       func(t *testing.T, dir string)
	}{
		{"as it should be", "", indexes(0)},
		{"three more indexes", "", indexes(3)},
		{"an image with two tags, and its signature", "", func(t *testing.T, dir string) {
			_, image := sound(t, dir)
			with := func(descriptor, field string) string { return strings.TrimSuffix(descriptor, "}") + ", " + field + "}" }
			artifact := writeBlob(t, dir, manifestType, manifestOf(writeBlob(t, dir, "application/vnd.oci.empty.v1+json", "{}")))
			writeIndex(t, dir, strings.Join([]string{
				with(artifact, `"artifactType": "application/vnd.example.signature"`),
				with(image, `"artifactType": "`+configType+`", "annotations": {"org.opencontainers.image.ref.name": "1.0"}`),
				with(image, `"annotations": {"org.opencontainers.image.ref.name": "latest"}`),
			}, ", "))
		}},
		{"an image beside one for another machine and a signature, of which the index says nothing", "", func(t *testing.T, dir string) {
			_, image := sound(t, dir)
			other := writeBlob(t, dir, configType, `{"os": "linux", "architecture": "s390x", "rootfs": {"type": "layers"}, "config": {"Cmd": ["/x"]}}`)
			payload := writeBlob(t, dir, "application/vnd.dev.cosign.simplesigning.v1+json", "{}")
			signature := fmt.Sprintf(`{"schemaVersion": 2, "config": %s, "layers": [%s]}`, writeBlob(t, dir, configType, "{}"), payload)
			writeIndex(t, dir, strings.Join([]string{
				writeBlob(t, dir, manifestType, signature), writeBlob(t, dir, manifestType, manifestOf(other)), image,
			}, ", "))
		}},
		{"two images", "2 images for this machine", func(t *testing.T, dir string) {
			_, image := sound(t, dir)
			writeIndex(t, dir, image+", "+writeBlob(t, dir, manifestType, ""))
		}},
		{"four more indexes", "more than 4 indexes", indexes(4)},
		{"an index that lists itself", " bytes, not ", func(t *testing.T, dir string) {
			self := writeBlob(t, dir, indexType, indexOf(writeBlob(t, dir, indexType, "")))
			replace(t, dir, self, func(path string) error { return os.WriteFile(path, []byte(indexOf(self)), 0o644) })
			writeIndex(t, dir, self)
		}},
		{"a manifest that was altered", "digest sha256:", func(t *testing.T, dir string) {
			config, manifest := sound(t, dir)
			replace(t, dir, manifest, func(path string) error {
				return os.WriteFile(path, []byte(strings.Replace(manifestOf(config), "2", "1", 1)), 0o644)
			})
			writeIndex(t, dir, manifest)
		}},
		{"a configuration that is a FIFO", "not a regular file", func(t *testing.T, dir string) {
			config, manifest := sound(t, dir)
			replace(t, dir, config, func(path string) error { return unix.Mkfifo(path, 0o644) })
			writeIndex(t, dir, manifest)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.write(t, dir)
			_, err := newFetcher(t).Import(t.Context(), dir)
			if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%v, want %q", err, tt.words)
			}
		})
	}
}

// Only Docker's registry has another name: that of its website.
func TestAnImageHasTheNameOfItsRegistry(t *testing.T) {
	for tag, want := range map[string]string{
		"index.docker.io/team/app:1": "docker.io/team/app", "team/app:1": "docker.io/team/app", "index.example.com/app:1": "index.example.com/app",
	} {
		dir := t.TempDir()
		config := writeBlob(t, dir, configType, `{"rootfs": {"type": "layers"}, "config": {"Cmd": ["/x"]}}`)
		manifest := writeBlob(t, dir, manifestType, manifestOf(config))
		writeIndex(t, dir, strings.TrimSuffix(manifest, "}")+fmt.Sprintf(`, "annotations": {"org.opencontainers.image.ref.name": %q}}`, tag))
		if image, err := newFetcher(t).Import(t.Context(), dir); err != nil || image.Manifest.Name != want {
			t.Errorf("%s: %+v, %v", tag, image, err)
		}
	}
}

// An image with a layer that the launcher does not know is not passed over as an artifact is, nor is one with layers of
// Zstandard in Docker's form.
func TestNoImageOfALayoutIsPassedOver(t *testing.T) {
	surroundings.Root(t)
	for _, tt := range []struct{ layer, words string }{
		{"application/vnd.docker.image.rootfs.diff.tar.zstd", ""},
		{"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", ""},
		{"application/vnd.example.layer", `media type "application/vnd.example.layer" is not a layer's`},
	} {
		archive, diffID := layerOf(t, "file")
		layout := t.TempDir()
		image := func(tag, config string, layers ...string) string {
			manifest := fmt.Sprintf(`{"schemaVersion": 2, "config": %s, "layers": [%s]}`, config, strings.Join(layers, ", "))
			return strings.TrimSuffix(writeBlob(t, layout, manifestType, manifest), "}") +
				fmt.Sprintf(`, "annotations": {"org.opencontainers.image.ref.name": %q}}`, tag)
		}
		config := func(diffIDs string) string {
			return writeBlob(t, layout, configType, fmt.Sprintf(`{"os": "linux", "architecture": %q, "rootfs": {"type": "layers", "diff_ids": [%s]}, "config": {"Cmd": ["/x"]}}`,
				runtime.GOARCH, diffIDs))
		}
		known := writeBlob(t, layout, "application/vnd.oci.image.layer.v1.tar", string(archive))
		odd := strings.Replace(known, "application/vnd.oci.image.layer.v1.tar", tt.layer, 1)
		both := fmt.Sprintf("%q, %q", diffID, diffID)
		writeIndex(t, layout, image("one", config(both), known, odd)+", "+image("two", config("")))
		all, err := newFetcher(t).ImportAll(t.Context(), layout)
		if tt.words == "" && (err != nil || len(all) != 2) || tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s: %d images, %v, want %q", tt.layer, len(all), err, tt.words)
		}
	}
}

// The limit of a layout's images comes before any of them is read, and equal entries are read once.
func TestALayoutIsNotReadTwice(t *testing.T) {
	layout := t.TempDir()
	manifest := manifestOf(writeBlob(t, layout, "application/vnd.oci.empty.v1+json", "{}"))
	artifact := writeBlob(t, layout, manifestType, manifest)
	writeIndex(t, layout, strings.Repeat(artifact+", ", maxNames)+artifact)
	const want = "the layout lists 1001 images, more than 1000"
	if _, err := layoutImages(t.Context(), layout, layout); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	reads := 0
	entry := v1.Descriptor{Digest: v1.Hash{Algorithm: "sha256", Hex: digestOf([]byte(manifest))[len("sha256:"):]}, Size: int64(len(manifest))}
	open := func(_, digest string, size int64) (*os.File, func(), error) {
		reads++
		return openBlob(t.Context(), layout, blobName(digest), digest, size)
	}
	left := described([]v1.Descriptor{entry, entry, entry}, open, open)
	if reads != 1 || len(left) != 0 {
		t.Errorf("%d reads, and %v are images", reads, left)
	}
}
