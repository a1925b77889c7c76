package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// layeredImage makes an image of Docker or OCI whose layers have a file each, with these contents.
func layeredImage(t *testing.T, contents ...string) v1.Image {
	t.Helper()
	image := empty.Image
	for i, content := range contents {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "layer-" + string(rune('a'+i)), Mode: 0o755, Size: int64(len(content))})
		if err == nil {
			_, err = w.Write([]byte(content))
		}
		image = must(mutate.AppendLayers(image, must(tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(archive.Bytes())), errors.Join(err, w.Close())
		}))))
	}
	config := must(image.ConfigFile()).DeepCopy()
	config.Config.Entrypoint, config.Config.User = []string{"/x"}, "5:6"
	return must(mutate.ConfigFile(image, config))
}

// layered makes an OCI layout in the folder of that name, which becomes the image's name.
func (h *host) layered(name string, contents ...string) (source string) {
	h.t.Helper()
	dir := filepath.Join(h.t.TempDir(), name)
	if err := must(layout.Write(dir, empty.Index)).AppendImage(layeredImage(h.t, contents...)); err != nil {
		h.t.Fatal(err)
	}
	return "file://" + dir
}

// layers returns the IDs of the layers in the store.
func (h *host) layers() (ids []string) {
	h.t.Helper()
	for _, image := range jsonLines[daemon.Image](h.t, h.run("image", "list", "--all", "--json")) {
		if image.Layer {
			ids = append(ids, image.ID)
		}
	}
	return ids
}

func (h *host) checkLayers(want int, when string) {
	h.t.Helper()
	if have := h.layers(); len(have) != want {
		h.t.Errorf("%s there are %d layers, want %d", when, len(have), want)
	}
}

// sharing imports two images that share their lowest layer, and returns its ID.
func (h *host) sharing() (base string) {
	h.t.Helper()
	h.run("image", "import", h.layered("web", strings.Repeat("b", 1000), strings.Repeat("w", 2000)))
	before := h.layers()
	h.run("image", "import", h.layered("db", strings.Repeat("b", 1000), strings.Repeat("d", 4000)))
	for _, id := range before {
		if r := h.try("image", "rm", id); strings.Contains(r.stderr, "db") || strings.Contains(r.stderr, "web") {
			base = id
		} else {
			h.t.Errorf("image rm of a layer: %+v", r)
		}
	}
	return base
}

// The layers of images are not listed, have no names that a person must know, and go with the last image that needs them.
func TestLayersGoWithTheirImages(t *testing.T) {
	h := bareHost(t)
	base := h.sharing()
	h.checkLayers(3, "after the imports")
	listed := h.listed()
	if len(listed) != 2 || listed["web"].Size != 3000 || listed["db"].Size != 5000 {
		t.Errorf("image list --json: %+v, want two images with the sizes of their layers", listed)
	}
	if out := h.run("image", "list"); strings.Count(out, "\n") != 3 || strings.Contains(out, "oci-layer") {
		t.Errorf("image list:\n%s", out)
	}
	if out := h.run("image", "list", "--all"); strings.Count(out, "\n") != 6 || strings.Count(out, "oci-layer/") != 3 {
		t.Errorf("image list --all:\n%s", out)
	}
	h.refuse(1, `: in use by image "`, "image", "rm", base)
	h.checkLayers(3, "after a refused removal")
	h.run("image", "rm", "web")
	h.checkLayers(2, "without the first image")
	h.refuse(1, `launcher: image `+base+`: in use by image "db"`, "image", "rm", base)
	h.run("image", "rm", "db")
	if out := h.run("image", "list", "--all", "--json"); out != "" {
		t.Errorf("image list --all --json without an image: %s", out)
	}
}

// An image of appc that another one names by its ID is not removed either.
func TestAnImageThatAnotherNamesStays(t *testing.T) {
	h := bareHost(t)
	base := strings.TrimSpace(h.run("image", "import", h.image("base.aci", baseManifest)))
	h.run("image", "import", h.image("top.aci", strings.Replace(appManifest, `"app":`, `"dependencies":[{"imageName":"example.com/base","imageID":"`+base+`"}],"app":`, 1)))
	h.refuse(1, `launcher: image example.com/base: in use by image "example.com/one"`, "image", "rm", "example.com/base")
	if out := h.run("image", "prune", "--all", "--dry-run"); strings.Count(out, "\n") != 2 {
		t.Errorf("image prune --all --dry-run: %q, want both", out)
	}
	h.run("image", "rm", "example.com/one", "example.com/base")
}

// A pod keeps the layers that it runs from, even if its image is lost.
func TestLayersOfAPodStay(t *testing.T) {
	h := newHost(t)
	h.run("image", "import", h.layered("web", "one", "two"))
	h.run("run", "--detach", "--name", "p", "web")
	if r := h.try("image", "rm", "web"); r.code != 1 || !strings.Contains(r.stderr, `image web: in use by pod "p"`) {
		t.Errorf("%+v", r)
	}
	if err := os.Rename(filepath.Dir(h.listed()["web"].Rootfs), filepath.Join(h.dir, "lost")); err != nil {
		t.Fatal(err)
	}
	if r := h.try("image", "rm", h.layers()[0]); r.code != 1 || !strings.Contains(r.stderr, `in use by pod "p"`) {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"image", "prune"}, {"image", "rm", "example.com/one"}, {"gc"}} {
		if out := h.run(args...); out != "" {
			t.Errorf("%s: %q", args, out)
		}
		h.checkLayers(2, "while a pod runs from them")
	}
	h.run("rm", "--force", "p")
	freed := strings.Fields(h.run("image", "prune"))
	h.checkLayers(0, "when no pod runs from them")
	if len(freed) != 2 {
		t.Errorf("image prune prints %q, want the two layers", freed)
	}
}

// A removal that stops half-way has removed the image and some of its layers, in this order; gc removes the rest.
func TestAnInterruptedRemovalLeavesNoPartOfAnImage(t *testing.T) {
	h := bareHost(t)
	h.run("image", "import", h.layered("web", "one", "two", "three"))
	last := h.layers()[0]
	place := filepath.Join(h.dir, "images", last)
	if err := unix.Mount(place, place, "", unix.MS_BIND, ""); err != nil { // a mount cannot be renamed
		t.Fatal(err)
	}
	r := h.try("image", "rm", "web")
	if err := unix.Unmount(place, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if r.code != 1 || !strings.Contains(r.stderr, "device or resource busy") || len(h.listed()) != 0 {
		t.Errorf("%+v; images %v", r, h.listed())
	}
	left := len(h.layers())
	if out := h.run("gc", "--dry-run"); left == 0 || !strings.Contains(out, "layers that no image needs\n") {
		t.Errorf("%d layers are left; gc --dry-run: %q", left, out)
	}
	h.run("gc")
	h.checkLayers(0, "after gc")
}

// Whenever a removal is killed, no image lacks a layer, and gc leaves nothing of it.
func TestAKilledRemovalLeavesNoPartOfAnImage(t *testing.T) {
	h := bareHost(t)
	source := h.layered("web", "one", "two", "three")
	for range 5 {
		id := strings.TrimSpace(h.run("image", "import", source))
		cmd := h.command("image", "rm", "web")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		surroundings.Eventually(t, "the removal begins", func() bool {
			_, err := os.Lstat(filepath.Join(h.dir, "images", id))
			return err != nil
		})
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if len(h.listed()) != 0 {
			t.Error("the image is there again")
		}
		h.run("gc")
		h.checkLayers(0, "after gc")
		if left := must(filepath.Glob(filepath.Join(h.dir, "images", "[^.]*"))); len(left) > 0 {
			t.Errorf("left in the store: %v", left)
		}
	}
}

// The layers that an import needs stay while it runs, and others do not. The next import that ends removes those that no
// image needs.
func TestLayersStayWhileAnImportRuns(t *testing.T) {
	h := bareHost(t)
	h.sharing()
	store := images.Open(filepath.Join(h.dir, "images"))
	var kept string
	for _, id := range h.layers() {
		if h.needed(id) {
			kept = id
		}
	}
	_, release, err := store.Keep(kept)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range h.listed() {
		h.run("image", "rm", image.ID)
	}
	h.refuse(1, "in use by an import that runs", "image", "rm", kept)
	h.run("image", "prune", "--all")
	h.run("gc")
	h.checkLayers(1, "while an import runs")
	release()
	h.run("image", "import", h.layered("other"))
	h.checkLayers(0, "after the import")
}

// needed reports whether an image of the store needs the layer.
func (h *host) needed(id string) bool {
	for _, image := range h.listed() {
		if strings.Contains(string(must(os.ReadFile(filepath.Join(filepath.Dir(image.Rootfs), "manifest")))), id) {
			return true
		}
	}
	return false
}

// An image whose layers another one has is complete, although that one is removed while the rest of the layers come.
func TestAnImageIsRemovedWhileALayerIsPulled(t *testing.T) {
	h := bareHost(t)
	asked, goOn, upper := make(chan struct{}), make(chan struct{}), ""
	server := newBlobs(t, func(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
		if upper != "" && strings.HasSuffix(r.URL.Path, upper) {
			close(asked)
			<-goOn
		}
		return w
	})
	h.run("image", "import", "docker://"+server.push("web", layeredImage(t, "base", "web")))
	db := layeredImage(t, "base", "db")
	upper = must(must(db.Layers())[1].Digest()).String()
	cmd := h.command("image", "import", "docker://"+server.push("db", db))
	imported := make(chan result)
	go func() { imported <- h.finish(cmd) }()
	<-asked
	for _, image := range h.listed() {
		h.run("image", "rm", image.ID)
	}
	h.checkLayers(1, "while the other image comes")
	close(goOn)
	if r := <-imported; r.code != 0 {
		t.Errorf("%+v", r)
	}
	for name, image := range h.listed() {
		if image.Size != int64(len("base")+len("db")) {
			t.Errorf("image %s has %d bytes", name, image.Size)
		}
	}
	h.checkLayers(2, "after the import")
}
