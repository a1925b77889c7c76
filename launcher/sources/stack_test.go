package sources

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/launcher/images"

	"github.com/google/go-containerregistry/pkg/name"
	inmemory "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// memoryRegistry is a registry that calls before for each request, which it answers unless before has.
func memoryRegistry(t *testing.T, before func(out http.ResponseWriter, in *http.Request) (done bool)) (host string) {
	t.Helper()
	images := inmemory.New(inmemory.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		if !before(out, in) {
			images.ServeHTTP(out, in)
		}
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// randomImage returns an image of two layers.
func randomImage(t *testing.T) v1.Image {
	t.Helper()
	image, err := random.Image(1<<10, 2)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err == nil {
		config.OS, config.Architecture, config.Config.Cmd = "linux", "amd64", []string{"/x"}
		image, err = mutate.ConfigFile(image, config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func pushTo(t *testing.T, to string, image v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(to)
	if err == nil {
		err = remote.Write(ref, image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dockerScheme + to
}

// topBlob returns the digest of the file of an image's top layer.
func topBlob(t *testing.T, image v1.Image) string {
	t.Helper()
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Layers[len(manifest.Layers)-1].Digest.String()
}

func isGetOf(in *http.Request, blob string) bool {
	return in.Method == http.MethodGet && strings.HasSuffix(in.URL.Path, "/blobs/"+blob)
}

// An import waits neither for another registry that sends the same layer slowly, nor for long for the same one. What a
// slow import does not need can be removed.
func TestASlowServerHoldsUpNoOtherImport(t *testing.T) {
	image := randomImage(t)
	blob := topBlob(t, image)
	asked, end := make(chan struct{}), make(chan struct{})
	var gets atomic.Int32
	slow := memoryRegistry(t, func(out http.ResponseWriter, in *http.Request) bool {
		if !isGetOf(in, blob) || gets.Add(1) > 1 {
			return false
		}
		out.WriteHeader(http.StatusOK)
		out.(http.Flusher).Flush()
		close(asked)
		<-end
		return true
	})
	fast := memoryRegistry(t, func(http.ResponseWriter, *http.Request) bool { return false })
	f := newFetcher(t)
	slowRef, fastRef := pushTo(t, slow+"/app", image), pushTo(t, fast+"/app", image)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := f.Import(ctx, slowRef)
		failed <- err
	}()
	<-asked
	if _, err := f.Import(t.Context(), fastRef); err != nil {
		t.Errorf("from another registry: %v", err)
	}
	other := *f
	other.Store, other.Name, other.pace = images.Open(t.TempDir()), "other", pace{1 << 20, 200 * time.Millisecond}
	if _, err := other.Import(t.Context(), slowRef); err != nil {
		t.Errorf("from the same registry: %v", err)
	}
	if _, err := f.Store.Remove(t.Context(), func(all []*images.Image, imports images.Imports) (gone []*images.Image, _ error) {
		for _, image := range all {
			if !imports.Keep(image) {
				gone = append(gone, image)
			}
		}
		if len(all)-len(gone) != 1 {
			t.Errorf("of %d images %d can be removed, want all but the slow import's one layer", len(all), len(gone))
		}
		return gone, nil
	}); err != nil {
		t.Error(err)
	}
	cancel()
	close(end)
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	f.checkCache(t)
}

// A layer of the store counts for an image only if the image's registry sends its file, or has sent it and grants it.
func TestALayerIsForWhoeverHasItsFile(t *testing.T) {
	image := randomImage(t)
	blob := topBlob(t, image)
	var gets atomic.Int32
	var refuses atomic.Bool
	owner := memoryRegistry(t, func(out http.ResponseWriter, in *http.Request) bool {
		if isGetOf(in, blob) {
			gets.Add(1)
		}
		if refuses.Load() && strings.HasSuffix(in.URL.Path, blob) {
			http.Error(out, "", http.StatusForbidden)
			return true
		}
		return false
	})
	f := newFetcher(t)
	f.attempts = 1
	if _, err := f.Import(t.Context(), pushTo(t, owner+"/app:1", image)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Import(t.Context(), pushTo(t, owner+"/app:2", image)); err != nil || gets.Load() != 1 {
		t.Errorf("a second tag: %v, the layer was sent %d times", err, gets.Load())
	}
	tests := map[string]func() string{
		"another registry without the file": func() string {
			host := memoryRegistry(t, func(out http.ResponseWriter, in *http.Request) bool {
				if isGetOf(in, blob) {
					http.NotFound(out, in)
				}
				return isGetOf(in, blob)
			})
			return pushTo(t, host+"/app", image)
		},
		"another registry with another file": func() string {
			host := memoryRegistry(t, func(http.ResponseWriter, *http.Request) bool { return false })
			other, err := mutate.ConfigFile(randomImage(t), configOf(t, image))
			if err != nil {
				t.Fatal(err)
			}
			return pushTo(t, host+"/app", other)
		},
		"the same registry without leave": func() string {
			ref := pushTo(t, owner+"/app:3", image)
			refuses.Store(true)
			return ref
		},
	}
	for name, push := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := f.Import(t.Context(), push())
			refuses.Store(false)
			if err == nil {
				t.Errorf("the image is %v", got.ID)
			}
		})
	}
}

func configOf(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// A part that another import has completed is no leave: its last byte is asked for again.
func TestACompletePartIsAskedForAgain(t *testing.T) {
	image := randomImage(t)
	blob := topBlob(t, image)
	var ranges atomic.Int32
	host := memoryRegistry(t, func(out http.ResponseWriter, in *http.Request) bool {
		if isGetOf(in, blob) && in.Header.Get("Range") != "" {
			ranges.Add(1)
			http.Error(out, "", http.StatusForbidden)
			return true
		}
		return false
	})
	ref := pushTo(t, host+"/app", image)
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[1].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	f := newFetcher(t)
	f.attempts = 1
	part, err := f.lockPart(t.Context(), host+"\n"+blob, -1)
	if err == nil {
		_, err = io.Copy(part, content)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = part.Close()
	if _, err := f.Import(t.Context(), ref); err == nil || ranges.Load() != 1 {
		t.Errorf("%v, asked %d times", err, ranges.Load())
	}
}
