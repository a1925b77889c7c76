package tests

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostileRegistries are what a registry of an attacker answers to everything but a ping.
func hostileRegistries(t *testing.T) map[string]http.HandlerFunc {
	long := strings.Repeat("x", 60<<10) // of headers, which a client keeps with each redirect
	endless := func(out http.ResponseWriter, in *http.Request, text string) {
		for text := []byte(strings.Repeat(text, 1<<14)); in.Method != http.MethodHead; {
			if _, err := out.Write(text); err != nil {
				return
			}
		}
	}
	return map[string]http.HandlerFunc{
		"redirects": func(out http.ResponseWriter, in *http.Request) {
			out.Header().Set("X-Long", long)
			http.Redirect(out, in, in.URL.Path+"x", http.StatusTemporaryRedirect)
		},
		"endless manifests": func(out http.ResponseWriter, in *http.Request) { endless(out, in, " ") },
		"manifests of many values": func(out http.ResponseWriter, in *http.Request) {
			document := []byte(`{"schemaVersion":2,"layers":[` + strings.Repeat("{},", 7<<20/3) + `{}]}`)
			_, _ = out.Write(document)
		},
		"large windows":      largeWindows(t, 32),
		"very large windows": largeWindows(t, 128),
	}
}

// largeWindows serves an image with a layer that has its decoder keep so many MiB of it.
func largeWindows(t *testing.T, size int) http.HandlerFunc {
	var layer bytes.Buffer
	w, err := zstd.NewWriter(&layer, zstd.WithWindowSize(size<<20))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(make([]byte, 130<<20))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	diffID := "sha256:" + strings.Repeat("0", 64)
	config := []byte(fmt.Sprintf(`{"os":"linux","architecture":"amd64","rootfs":{"type":"layers","diff_ids":[%q]}}`, diffID))
	manifest := []byte(fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`,
		descriptor("application/vnd.oci.image.config.v1+json", config), descriptor("application/vnd.oci.image.layer.v1.tar+zstd", layer.Bytes())))
	return func(out http.ResponseWriter, in *http.Request) {
		switch {
		case strings.Contains(in.URL.Path, "/manifests/"):
			out.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = out.Write(manifest)
		case strings.HasSuffix(in.URL.Path, digestOf(config)):
			_, _ = out.Write(config)
		default:
			_, _ = out.Write(layer.Bytes())
		}
	}
}

// A registry that redirects, sends and has the server unpack without end takes little of its memory, and no other call
// waits.
func TestHostileRegistries(t *testing.T) {
	for name, answer := range hostileRegistries(t) {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			registry := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
				if in.URL.Path != "/v2/" {
					answer(out, in)
				}
			}))
			defer registry.Close()
			var pulls sync.WaitGroup
			for i := range 5 {
				pulls.Go(func() {
					ref := fmt.Sprintf("%s/box%d:1", strings.TrimPrefix(registry.URL, "http://"), i)
					r, err := n.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
					if err == nil || len(err.Error()) > 4<<10 {
						t.Errorf("%v, an error of %d bytes", r, len(fmt.Sprint(err)))
					}
				})
			}
			n.withstands()
			pulls.Wait()
			n.withstands()
		})
	}
}

func digestOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

func descriptor(mediaType string, data []byte) string {
	return fmt.Sprintf(`{"mediaType":%q,"size":%d,"digest":"sha256:%s"}`, mediaType, len(data), digestOf(data))
}
