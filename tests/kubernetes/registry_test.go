package kubernetes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"time"
)

const (
	registry = controlAddress + ":" + registryPort
	image    = registry + "/busybox:1"
)

// serveImages serves the image of busybox, whose commands are hard links, as a registry does.
func (c *cluster) serveImages() {
	c.Helper()
	r := newImages()
	r.add(c, "busybox:1", map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sh"}}, c.layer())
	r.serve(c)
}

// images are those of a registry.
type images struct {
	blobs map[string][]byte // also manifests, by digest
	tags  map[string]string // the digests of manifests by NAME:TAG, without the folders of the name
}

func newImages() *images {
	return &images{blobs: make(map[string][]byte), tags: make(map[string]string)}
}

const imageKinds = "application/vnd.oci.image."

// add adds an image, and returns the digest of its manifest.
func (r *images) add(c *cluster, name string, settings map[string]any, layers ...[]byte) (digest string) {
	c.Helper()
	descriptor := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		r.blobs[digest] = data
		return map[string]any{"mediaType": imageKinds + kind, "digest": digest, "size": len(data)}
	}
	var described []any
	var ids []string
	for _, layer := range layers {
		d := descriptor("layer.v1.tar", layer)
		described, ids = append(described, d), append(ids, d["digest"].(string))
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": settings,
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	c.must(err)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": imageKinds + "manifest.v1+json", "config": descriptor("config.v1+json", config),
		"layers": described,
	})
	c.must(err)
	r.tags[name] = descriptor("manifest.v1+json", manifest)["digest"].(string)
	return r.tags[name]
}

// serve serves the images until the test's end.
func (r *images) serve(c *cluster) {
	c.Helper()
	listener, err := net.Listen("tcp", registry)
	c.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		name, digest := path.Split(q.URL.Path)
		if path.Base(name) == "manifests" {
			w.Header().Set("Content-Type", imageKinds+"manifest.v1+json")
			if tagged, ok := r.tags[path.Base(path.Dir(path.Clean(name)))+":"+digest]; ok {
				digest = tagged
			}
		}
		data, ok := r.blobs[digest]
		switch {
		case q.URL.Path == "/v2/":
		case !ok:
			http.NotFound(w, q)
		default:
			w.Header().Set("Docker-Content-Digest", digest)
			http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
		}
	})}
	go func() { _ = server.Serve(listener) }()
	c.Cleanup(func() { _ = server.Close() })
}

// layer returns a layer with busybox.
func (c *cluster) layer() []byte {
	c.Helper()
	program, err := os.ReadFile("/bin/busybox")
	c.must(err)
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	c.must(err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		c.must(w.WriteHeader(&h))
		_, err := w.Write(data)
		c.must(err)
	}
	for _, dir := range []string{"bin", "etc", "root"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeDir, Name: "tmp", Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			add(tar.Header{Typeflag: tar.TypeLink, Name: "bin/" + applet, Linkname: "bin/busybox"}, nil)
		}
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/root:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\n"))
	c.must(w.Close())
	return layer.Bytes()
}
