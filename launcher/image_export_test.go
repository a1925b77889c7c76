package main

import (
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
	if r := h.try("image", "export", layered, other); r.code != 0 || !strings.Contains(r.stderr, "its ID is another one\n") {
		t.Errorf("of an image that was converted: %+v", r)
	}
	if again := strings.TrimSpace(h.run("image", "import", other)); again == layered {
		t.Error("the file has the image's ID in spite of the warning")
	}
}
