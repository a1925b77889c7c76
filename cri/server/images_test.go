package server

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"kurma.io/stager/cri/imageindex"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/tests/surroundings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// guarded is a registry that wants user "me" with password "secret"; it has an image called box.
func guarded(t *testing.T) (address string) {
	t.Helper()
	open := registry.New()
	address = serve(t, open)
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(address + "/box:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(remote.Write(ref, image), remote.Write(ref.Context().Tag("none"), empty.Image)); err != nil {
		t.Fatal(err)
	}
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, r)
	}))
}

func serve(t *testing.T, handler http.Handler) string {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestPullHasItsOwnCredentials(t *testing.T) {
	surroundings.Root(t)
	address, config := guarded(t), Config{State: t.TempDir()}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	pull := func(auth *runtimeapi.AuthConfig) error {
		_, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: address + "/box:1"}, Auth: auth})
		return err
	}
	// The store has the image, which no one else may use.
	if err := pull(&runtimeapi.AuthConfig{Username: "me", Password: "secret"}); err != nil {
		t.Fatal(err)
	}
	both := base64.StdEncoding.EncodeToString([]byte("me:secret"))
	for name, test := range map[string]struct {
		auth *runtimeapi.AuthConfig
		want string // in the error; "" for none
	}{
		"user and password": {&runtimeapi.AuthConfig{Username: "me", Password: "secret"}, ""},
		"both in base64":    {&runtimeapi.AuthConfig{Auth: both}, ""},
		"none":              {nil, "UNAUTHORIZED"},
		"another password":  {&runtimeapi.AuthConfig{Username: "me", Password: "other"}, "UNAUTHORIZED"},
		"not base64":        {&runtimeapi.AuthConfig{Auth: "?"}, "base64"},
	} {
		err := pull(test.auth)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// A pulled image, which may be private, has no name and no ID below aci/.
func TestPulledImagesAreNotFoundInTheStore(t *testing.T) {
	surroundings.Root(t)
	address, config := guarded(t), Config{State: t.TempDir()}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	me := &runtimeapi.AuthConfig{Username: "me", Password: "secret"}
	if _, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: address + "/box:1"}, Auth: me}); err != nil {
		t.Fatal(err)
	}
	all, err := s.images.List()
	if err != nil || len(all) != 2 { // the image and its layer
		t.Fatalf("%v, %v", all, err)
	}
	for _, image := range all {
		for _, name := range []string{image.Versioned(), image.Manifest.Name, image.ID, image.ID[:12], image.ID[7:12]} {
			spec := &runtimeapi.ImageSpec{Image: "aci/" + name + ":latest"}
			if _, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec}); !errors.Is(err, images.ErrNotFound) {
				t.Errorf("%s: %v", name, err)
			}
			if r, err := s.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: spec}); r.GetImage() != nil || err != nil {
				t.Errorf("%s: %v, %v", name, r, err)
			}
		}
	}
}

// A registry counts a GET of a manifest as a pull. An image that was pulled from the repository before needs none, unless the
// store has lost a part of it.
func TestAnUnchangedImageIsNotPulledAgain(t *testing.T) {
	surroundings.Root(t)
	var pulls atomic.Int32
	var noHead atomic.Bool
	all := registry.New()
	address, config := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch manifest := strings.Contains(r.URL.Path, "/manifests/"); {
		case manifest && r.Method == http.MethodHead && noHead.Load():
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		case manifest && r.Method == http.MethodGet:
			pulls.Add(1)
		}
		all.ServeHTTP(w, r)
	})), Config{State: t.TempDir()}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"/box:1", "/box:2", "/other:1"} {
		ref, err := name.ParseReference(address + tag)
		if err == nil {
			err = remote.Write(ref, image)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var id string
	check := func(tag string, want bool) {
		t.Helper()
		pulls.Store(0)
		r, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: address + tag}})
		if err != nil {
			t.Fatal(err)
		}
		id = cmp.Or(id, r.ImageRef)
		found, err := s.findImage(address + tag)
		if r.ImageRef != id || found == nil || found.ID != id || (pulls.Load() > 0) != want {
			t.Errorf("%s: %s, want %s; found %v, %v; %d manifests", tag, r.ImageRef, id, found, err, pulls.Load())
		}
	}
	check("/box:1", true)
	check("/box:1", false)
	check("/box:2", false)
	check("/other:1", true)
	layers, err := s.imageOf(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(layers[1].Dir, filepath.Join(t.TempDir(), "layer")); err != nil {
		t.Fatal(err)
	}
	check("/box:1", true)
	noHead.Store(true)
	check("/box:1", true)
	if layers, err = s.imageOf(id); err != nil || len(layers) != 2 {
		t.Errorf("%v, %v", layers, err)
	}
}

// serverWithRegistry opens a server, beside a registry that has the image.
func serverWithRegistry(t *testing.T) (*Server, *runtimeapi.ImageSpec) {
	t.Helper()
	address, config := serve(t, registry.New()), Config{State: t.TempDir()}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(address + "/box:1")
	if err == nil {
		err = remote.Write(ref, empty.Image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, &runtimeapi.ImageSpec{Image: ref.String()}
}

// The index forgets an image before the store does, so that it keeps one that is pulled again while the files of the
// first are deleted.
func TestAnImageThatIsRemovedMayBePulledAgain(t *testing.T) {
	surroundings.Root(t)
	s, spec := serverWithRegistry(t)
	pull := func() string {
		r, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec})
		if err != nil {
			t.Fatal(err)
		}
		return r.ImageRef
	}
	id := pull()
	if _, err := s.images.Remove(t.Context(), func(all []*images.Image, imports images.Imports) ([]*images.Image, error) {
		chosen, err := s.choose(all, imports, id)
		if found, _ := s.index.Find(id); found != nil || len(chosen) != 1 {
			t.Errorf("%v, %v", found, chosen)
		}
		return chosen, err
	}); err != nil {
		t.Fatal(err)
	}
	if pull() != id {
		t.Error("another image")
	}
	if _, err := s.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.index.Find(id); found != nil || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// Pulls and removals remove what earlier ones could not.
func TestLeftoversOfImagesGoWithTheNextCall(t *testing.T) {
	s, spec := serverWithRegistry(t)
	pull := func() error {
		_, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: spec})
		return err
	}
	remove := func() error {
		_, err := s.RemoveImage(t.Context(), &runtimeapi.RemoveImageRequest{Image: spec})
		return err
	}
	for i, call := range []func() error{pull, remove, remove} {
		err := os.MkdirAll(filepath.Join(s.config.State, "images/.tmp-earlier/rootfs"), 0o700)
		if err := errors.Join(err, call()); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(s.config.State, "images/.tmp-*")); left != nil || err != nil {
			t.Errorf("call %d leaves %q, %v", i, left, err)
		}
	}
}

// A tag that was moved means the other image, and the first keeps its digest.
func TestIndexMovesTags(t *testing.T) {
	x := imageindex.Open(filepath.Join(t.TempDir(), "images.json"))
	ref, err := imageindex.Parse("busybox:1")
	if err != nil {
		t.Fatal(err)
	}
	digests := []string{"sha256:" + strings.Repeat("1", 64), "sha256:" + strings.Repeat("2", 64)}
	if err := errors.Join(x.Add("a", ref, digests[0]), x.Add("b", ref, digests[1])); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"docker.io/library/busybox:1": "b", "busybox@" + digests[0]: "a", "busybox@" + digests[1]: "b", "a": "a",
	} {
		if got, err := x.Find(text); err != nil || got == nil || got.ID != want {
			t.Errorf("%s: %v, %v, want %s", text, got, err, want)
		}
	}
}
