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
	"runtime"
)

// registryAddress is the registry's, on the world's own loopback.
const registryAddress = "127.0.0.1:5000"

// pulled is the image of the registry.
const pulled = registryAddress + "/test:1"

// pulledName is the name that the image gets in the launcher's store.
const pulledName = "127.0.0.1_5000/test"

// serveRegistry serves a registry of the image pulled, whose only program is busybox.
func serveRegistry() error {
	layer, err := busyboxLayer()
	if err != nil {
		return err
	}
	config := fmt.Appendf(nil, `{"architecture": %q, "os": "linux", "config": {"Cmd": ["/bin/sh"]}, "rootfs": {"type": "layers", "diff_ids": [%q]}}`, runtime.GOARCH, digest(layer))
	manifest := fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q,
		"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "size": %d, "digest": %q},
		"layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "size": %d, "digest": %q}]}`,
		manifestType, len(config), digest(config), len(layer), digest(layer))
	files := map[string][]byte{
		"/v2/": {}, "/v2/test/manifests/1": manifest, "/v2/test/manifests/" + digest(manifest): manifest,
		"/v2/test/blobs/" + digest(config): config, "/v2/test/blobs/" + digest(layer): layer,
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

const manifestType = "application/vnd.oci.image.manifest.v1+json"

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
