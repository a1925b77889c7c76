package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// blobs is a registry of which a test sees each request for a layer or configuration before it is answered.
type blobs struct {
	t    *testing.T
	host string // HOST:PORT
}

func newBlobs(t *testing.T, see func(w http.ResponseWriter, r *http.Request)) blobs {
	t.Helper()
	answer := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			see(w, r)
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return blobs{t, strings.TrimPrefix(server.URL, "http://")}
}

// push puts an image into the registry and returns HOST:PORT/NAME.
func (b blobs) push(repository string, image v1.Image) string {
	b.t.Helper()
	ref := b.host + "/" + repository
	if err := remote.Write(must(name.ParseReference(ref)), image); err != nil {
		b.t.Fatal(err)
	}
	return ref
}
