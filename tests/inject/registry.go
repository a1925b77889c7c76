package inject

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// registryAddress is the registry's, on the world's own loopback.
const registryAddress = "127.0.0.1:5000"

// pulled is the image of the registry.
const pulled = registryAddress + "/test:1"

// pulledName is the name that the image gets in the launcher's store.
const pulledName = "127.0.0.1_5000/test"

// The images that are files have other names than the registry's, and the same layer.
const (
	layoutDir, layoutImage  = "layout", "example.com/layout:1"
	archiveFile, savedImage = "saved.tar", "example.com/saved:1"
	layoutName, savedName   = "example.com/layout", "example.com/saved"
	configType, layerType   = "application/vnd.oci.image.config.v1+json", "application/vnd.oci.image.layer.v1.tar"
	manifestType            = "application/vnd.oci.image.manifest.v1+json"
)

// An ociImage is the parts of an image whose only program is busybox.
type ociImage struct{ layer, config, manifest []byte }

func newImage() (ociImage, error) {
	layer, err := busyboxLayer()
	if err != nil {
		return ociImage{}, err
	}
	config := fmt.Appendf(nil, `{"architecture": %q, "os": "linux", "config": {"Cmd": ["/bin/sh"]}, "rootfs": {"type": "layers", "diff_ids": [%q]}}`, runtime.GOARCH, digest(layer))
	manifest := fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q,
		"config": {"mediaType": %q, "size": %d, "digest": %q},
		"layers": [{"mediaType": %q, "size": %d, "digest": %q}]}`,
		manifestType, configType, len(config), digest(config), layerType, len(layer), digest(layer))
	return ociImage{layer, config, manifest}, nil
}

// writeLayout writes an OCI layout of the image to layoutDir.
func (w *world) writeLayout(image ociImage) error {
	blobs := w.path(filepath.Join(layoutDir, "blobs", "sha256"))
	if err := os.MkdirAll(blobs, 0o700); err != nil {
		return err
	}
	index := fmt.Appendf(nil, `{"schemaVersion": 2, "manifests": [{"mediaType": %q, "size": %d, "digest": %q,
		"annotations": {"org.opencontainers.image.ref.name": %q}}]}`, manifestType, len(image.manifest), digest(image.manifest), layoutImage)
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion": "1.0.0"}`), "index.json": index}
	for _, data := range [][]byte{image.layer, image.config, image.manifest} {
		files[filepath.Join("blobs", "sha256", strings.TrimPrefix(digest(data), "sha256:"))] = data
	}
	for name, data := range files {
		if err := os.WriteFile(w.path(filepath.Join(layoutDir, name)), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeArchive writes the image to archiveFile, as docker save does.
func (w *world) writeArchive(image ociImage) error {
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	list := fmt.Appendf(nil, `[{"Config": "config.json", "RepoTags": [%q], "Layers": ["layer.tar"]}]`, savedImage)
	for _, f := range []struct {
		name string
		data []byte
	}{{"layer.tar", image.layer}, {"config.json", image.config}, {"manifest.json", list}} {
		if err := out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := out.Write(f.data); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.WriteFile(w.path(archiveFile), archive.Bytes(), 0o600)
}

// serveRegistry serves a registry of the image, named pulled.
func serveRegistry(image ociImage) error {
	files := map[string][]byte{
		"/v2/": {}, "/v2/test/manifests/1": image.manifest, "/v2/test/manifests/" + digest(image.manifest): image.manifest,
		"/v2/test/blobs/" + digest(image.config): image.config, "/v2/test/blobs/" + digest(image.layer): image.layer,
	}
	listener, err := net.Listen("tcp", registryAddress)
	if err != nil {
		return err
	}
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // until the worker ends
			data, found := files[r.URL.Path]
			if !found {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Docker-Content-Digest", digest(data))
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			_, _ = w.Write(data)
		}))
	}()
	return nil
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// busyboxLayer returns a layer with this machine's busybox, which is static.
func busyboxLayer() ([]byte, error) {
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	out := tar.NewWriter(&layer)
	var errs []error
	for _, h := range []tar.Header{
		{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
		{Name: "bin/sh", Typeflag: tar.TypeSymlink, Linkname: "busybox"},
		{Name: "bin/sleep", Typeflag: tar.TypeSymlink, Linkname: "busybox"},
	} {
		errs = append(errs, out.WriteHeader(&h))
		if h.Size > 0 {
			_, err := out.Write(program)
			errs = append(errs, err)
		}
	}
	err = errors.Join(append(errs, out.Close())...)
	return layer.Bytes(), err
}
