package main

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// blobs is a registry of which a test sees each request for a layer or configuration before it is answered, and may change the answer.
type blobs struct {
	t      *testing.T
	host   string // HOST:PORT
	server *httptest.Server
}

func newBlobs(t *testing.T, see func(http.ResponseWriter, *http.Request) http.ResponseWriter) blobs {
	t.Helper()
	answer := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			w = see(w, r)
		}
		answer.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return blobs{t, strings.TrimPrefix(server.URL, "http://"), server}
}

func unseen(w http.ResponseWriter, _ *http.Request) http.ResponseWriter { return w }

// push puts an image into the registry and returns HOST:PORT/NAME.
func (b blobs) push(repository string, image v1.Image) string {
	b.t.Helper()
	ref := b.host + "/" + repository
	if err := remote.Write(must(name.ParseReference(ref)), image); err != nil {
		b.t.Fatal(err)
	}
	return ref
}

// Images of registries are named without docker:// where the store has no image of the name.
func TestImagesAreNamedAsTheirRegistriesDo(t *testing.T) {
	h := newHost(t)
	h.configure(`"cacheDirectory":"cache"`)
	server := newBlobs(t, unseen)
	web := server.push("team/web:1", layeredImage(t, "web"))
	if _, _, stderr := h.starts(web); stderr != "" {
		t.Errorf("run of an image that was asked for by its name warns: %s", stderr)
	}
	id := strings.TrimSpace(h.run("image", "import", web))
	if out := h.run("inspect", web); !strings.Contains(out, id) {
		t.Errorf("inspect %s: %s", web, out)
	}
	h.run("validate", web)
	server.server.Close()
	h.starts(web) // what was imported is found without the registry
	h.run("image", "rm", web)
	h.refuse(1, "launcher: import docker://"+web+": ", "run", web)
	h.refuse(1, "launcher: import docker://"+web+": ", "image", "import", web)
	h.refuse(1, `no such image: "`+web+`"`, "image", "rm", web)
	for _, ref := range []string{"web", "example.com/web", "docker.io"} {
		h.refuse(1, `no such image: "`+ref+`"`, "run", ref)
		h.refuse(1, "no such file or directory; docker://NAME means an image of a registry\n", "image", "import", ref)
	}
}

// A registry's mirror is asked, in the folder that the configuration names, and a mistake is one line that names file and key.
func TestAMirrorHasARegistrysImages(t *testing.T) {
	h := newHost(t)
	h.configure(`"registriesDirectory":"certs.d"`)
	server := newBlobs(t, unseen)
	server.push("team/web:1", layeredImage(t, "web"))
	folder := filepath.Join(h.dir, "certs.d/registry.test")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	h.text("certs.d/registry.test/hosts.toml", `[host."http://`+server.host+`"]`+"\ncapability = []\n")
	h.refuse(1, filepath.Join(folder, "hosts.toml")+`: unknown key host."http://`+server.host+`".capability`+"\n", "image", "import", "docker://registry.test/team/web:1")
	h.text("certs.d/registry.test/hosts.toml", `[host."http://`+server.host+`"]`)
	h.starts("docker://registry.test/team/web:1")
}

// An image of the store, a file and a pin each have a name before a registry has it.
func TestTheStoreHasNamesBeforeRegistries(t *testing.T) {
	h := newHost(t)
	h.configure(`"imagePins":{"127.0.0.1:1/pinned":"2","docker.io/library/pinned":"2"}`)
	h.run("image", "import", h.image("mine.aci", strings.Replace(appManifest, "example.com/one", "docker.io/library/mine", 1)))
	h.starts("docker.io/library/mine")
	h.refuse(1, `no such image: "127.0.0.1:1/pinned:1"`, "run", "127.0.0.1:1/pinned:1")
	h.refuse(1, `no such image: "docker.io/library/pinned"`, "run", "docker.io/library/pinned")
	t.Chdir(h.dir)
	file := filepath.Join("127.0.0.1:1", "file")
	if err := errors.Join(os.Mkdir("127.0.0.1:1", 0o755), os.Rename("mine.aci", file)); err != nil {
		t.Fatal(err)
	}
	h.run("image", "import", file)
}

// Without a stager that can be trusted, nothing is pulled.
func TestAMissingStagerIsReportedBeforeAPull(t *testing.T) {
	h := bareHost(t)
	server := newBlobs(t, func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
		t.Errorf("the registry is asked for %s", r.URL.Path)
		return w
	})
	web := server.push("web", layeredImage(t, "web"))
	for _, command := range []string{"run", "validate"} {
		h.refuse(1, "pods need a stager image", command, "docker://"+web)
	}
	h.run("image", "import", h.stagerImage("stager.aci", "", nil))
	h.refuse(1, "not signed", "run", web)
	if out := h.run("image", "list", "--all", "--json"); strings.Count(out, "\n") != 1 {
		t.Errorf("images: %s", out)
	}
}
