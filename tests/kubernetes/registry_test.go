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
	blobs, tag := make(map[string][]byte), ""
	descriptor := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		blobs[digest] = data
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(data)}
	}
	const kinds = "application/vnd.oci.image."
	layer := c.layer()
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	c.must(err)
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": kinds + "manifest.v1+json", "config": descriptor(kinds+"config.v1+json", config),
		"layers": []any{descriptor(kinds+"layer.v1.tar", layer)},
	})
	c.must(err)
	tag = descriptor("", manifest)["digest"].(string)
	listener, err := net.Listen("tcp", registry)
	c.must(err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		if name == "1" {
			name = tag
		}
		data, ok := blobs[name]
		switch {
		case r.URL.Path == "/v2/":
		case !ok:
			http.NotFound(w, r)
		default:
			if name == tag {
				w.Header().Set("Content-Type", kinds+"manifest.v1+json")
			}
			w.Header().Set("Docker-Content-Digest", name)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
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
