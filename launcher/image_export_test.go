package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Export warns of another ID only where the file's ID is another one.
func TestExportWarnsOfAnotherID(t *testing.T) {
	h := bareHost(t)
	id := strings.TrimSpace(h.run("image", "import", h.image("base.aci", baseManifest)))
	same := filepath.Join(h.dir, "same.aci")
	if r := h.try("image", "export", id, same); r.code != 0 || r.stderr != "" {
		t.Errorf("of an image that aci has built: %+v", r)
	}
	if again := strings.TrimSpace(h.run("image", "import", same)); again != id {
		t.Errorf("the file is %s, want %s", again, id)
	}
	layered := strings.TrimSpace(h.run("image", "import", h.ociImage("/entry", "word")))
	other := filepath.Join(h.dir, "other.aci")
	r := h.try("image", "export", layered, other)
	again := strings.TrimSpace(h.run("image", "import", other))
	if again == layered || r.code != 0 || !strings.Contains(r.stderr, " with the ID "+again+"; ") {
		t.Errorf("of an image that was converted: %+v; the file has the ID %s", r, again)
	}
}

// A rebuilt file has the same ID in each compression, and is not compressed unless an option says so.
func TestExportCompressesAsAsked(t *testing.T) {
	h := bareHost(t)
	id := strings.TrimSpace(h.run("image", "import", h.image("base.aci", baseManifest)))
	for _, tt := range []struct{ name, option, start string }{
		{"plain", "", "manifest"}, {"none", "--compress=none", "manifest"}, {"zstd", "--compress=zstd", "\x28\xb5\x2f\xfd"}, {"gzip", "--compress=gzip", "\x1f\x8b"},
	} {
		path := filepath.Join(h.dir, tt.name)
		h.run(strings.Fields("image export " + tt.option + " " + id + " " + path)...)
		if text := string(must(os.ReadFile(path))); !strings.HasPrefix(text, tt.start) {
			t.Errorf("%s begins with %q", tt.name, text[:8])
		}
		if again := strings.TrimSpace(h.run("image", "import", path)); again != id {
			t.Errorf("%s is %s, want %s", tt.name, again, id)
		}
	}
	h.refuse(2, "want none, zstd, gzip", "image", "export", "--compress", "lz4", id, filepath.Join(h.dir, "lz4"))
}

// exported exports an image and checks the messages, and returns a host that has imported the files, and no others.
func (h *host) exported(ref string, files []string, words ...string) *host {
	h.t.Helper()
	path := filepath.Join(h.t.TempDir(), "image.aci")
	r := h.try("image", "export", ref, path)
	if r.code != 0 || strings.Count(r.stderr, "\n") != len(words) {
		h.t.Fatalf("%+v", r)
	}
	for _, word := range words {
		if !strings.Contains(r.stderr, strings.ReplaceAll(word, "FILE", path)+"\n") {
			h.t.Errorf("stderr %s, want %q", r.stderr, word)
		}
	}
	var left []string
	for _, file := range must(os.ReadDir(filepath.Dir(path))) {
		left = append(left, strings.TrimPrefix(file.Name(), "image.aci"))
	}
	if strings.Join(left, " ") != strings.Join(files, " ") {
		h.t.Errorf("files %q, want %q", left, files)
	}
	other := bareHost(h.t)
	stager := other.stagerImage("stager.aci", "", other.key)
	other.run("image", "import", stager)
	for _, suffix := range files {
		if !strings.HasSuffix(suffix, ".asc") {
			other.run("image", "import", path+suffix)
		}
	}
	return other
}

// dependent imports an image that names another one by its ID.
func (h *host) dependent(more string, signed bool) {
	h.t.Helper()
	base := h.image("base.aci", baseManifest)
	id := strings.TrimSpace(h.run("image", "import", base))
	top := h.image("top.aci", strings.Replace(appManifest, `"app":`, more+`"dependencies":[{"imageName":"example.com/base","imageID":"`+id+`"}],"app":`, 1))
	if signed {
		h.sign(top, h.key)
	}
	h.run("image", "import", top)
}

// What export has written of an image with dependencies runs on a machine that has nothing else.
func TestAnExportedImageRunsElsewhere(t *testing.T) {
	t.Run("layers", func(t *testing.T) {
		h := bareHost(t)
		h.run("image", "import", h.layered("web", "one", "two"))
		other := h.exported("web", []string{""}, "launcher: FILE includes the files of the image's dependencies (2)",
			"; a manifest for other machines names this ID, or the image's name")
		other.starts("web")
		// What the other machine exports has the same ID again, so a manifest by this ID moves on.
		id := other.listed()["web"].ID
		other.run("image", "export", id, filepath.Join(other.dir, "again.aci"))
		if here := strings.TrimSpace(h.run("image", "import", filepath.Join(other.dir, "again.aci"))); here != id {
			t.Errorf("the image has the ID %s on one machine, %s on the other", here, id)
		}
		root := other.listed()["web"].Rootfs
		for file, want := range map[string]string{"layer-a": "one", "layer-b": "two"} {
			if got := string(must(os.ReadFile(filepath.Join(root, file)))); got != want {
				t.Errorf("%s has %q", file, got)
			}
		}
		other.checkLayers(0, "where the image was imported")
	})
	t.Run("signed", func(t *testing.T) {
		h := bareHost(t)
		h.dependent("", true)
		other := h.exported("example.com/one", []string{"", ".1", ".asc"}, "launcher: import FILE.1 with FILE, because the image depends on them")
		other.starts("example.com/one")
		if !other.listed()["example.com/one"].Signed {
			t.Error("the signature is lost")
		}
	})
	t.Run("pathWhitelist", func(t *testing.T) {
		h := bareHost(t)
		h.dependent(`"pathWhitelist":["/x"],`, false)
		h.exported("example.com/one", []string{"", ".1"}, "launcher: import FILE.1 with FILE, because the image depends on them").starts("example.com/one")
	})
}

// An export that fails leaves nothing, and no file is overwritten.
func TestAFailedExportLeavesNothing(t *testing.T) {
	h := bareHost(t)
	h.dependent("", true)
	path := filepath.Join(h.dir, "file")
	for _, there := range []string{"file", "file.asc", "file.1"} {
		h.text(there, "mine")
		h.refuse(1, "open "+filepath.Join(h.dir, there)+": file exists", "image", "export", "example.com/one", path)
		if left := must(filepath.Glob(path + "*")); len(left) != 1 || string(must(os.ReadFile(left[0]))) != "mine" {
			t.Errorf("left %q", left)
		}
		if err := os.Remove(filepath.Join(h.dir, there)); err != nil {
			t.Fatal(err)
		}
	}
}
