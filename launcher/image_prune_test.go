package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// prune removes images that a later import has replaced, unless a live pod uses them.
func TestPruneRemovesReplacedImages(t *testing.T) {
	h := newHost(t)
	old := h.listed()["example.com/one"].ID
	h.run("run", "--detach", "--name", "p", "example.com/one")
	later := h.image("later.aci", appManifest)
	h.sign(later, h.key)
	fresh := strings.TrimSpace(h.run("image", "import", later))
	if out := h.run("image", "prune"); out != "" {
		t.Errorf("an image in use is removed: %q", out)
	}
	h.run("rm", "--force", "p")
	for _, args := range [][]string{{"image", "prune", "--dry-run"}, {"image", "prune"}} {
		if out := h.run(args...); out != old+"\n" {
			t.Errorf("%s: %q, want %s", args, out, old)
		}
	}
	if out := h.run("image", "prune", "--all", "--json"); !strings.HasPrefix(out, `{"id":"`+fresh+`","name":"example.com/one","size":`) || strings.Count(out, "\n") != 1 {
		t.Errorf("prune --all: %q", out)
	}
	if all := h.listed(); len(all) != 1 || all[stagerName].ID == "" {
		t.Errorf("prune --all has left %+v, want the stager alone", all)
	}
}

// An image that is not signed replaces none that is, and none that another image names by its ID.
func TestPruneKeepsWhatIsNotReplaced(t *testing.T) {
	h := newHost(t)
	base := h.image("base.aci", baseManifest)
	h.sign(base, h.key)
	signed := strings.TrimSpace(h.run("image", "import", base))
	later := strings.TrimSpace(h.run("image", "import", h.image("later.aci", baseManifest)))
	h.run("image", "import", h.image("top.aci", strings.Replace(strings.Replace(appManifest, "example.com/one", "example.com/top", 1), `"app":`, `"dependencies":[{"imageName":"example.com/base","imageID":"`+later+`"}],"app":`, 1)))
	h.run("image", "import", h.image("latest.aci", baseManifest))
	if out := h.run("image", "prune"); out != "" {
		t.Errorf("prune: %q; the signed one is %s, the named one %s", out, signed, later)
	}
}

// Several commands that prune at once remove each image once, and none fails.
func TestPrunesAtTheSameTime(t *testing.T) {
	h := newHost(t)
	for i := range 8 {
		name := fmt.Sprintf("example.com/unused-%d", i)
		h.run("image", "import", h.image(fmt.Sprintf("%d.aci", i), strings.Replace(appManifest, "example.com/one", name, 1)))
	}
	unused := len(h.listed()) - 1
	var out [6]string
	var pruning sync.WaitGroup
	for i := range out {
		pruning.Go(func() {
			r := h.try("image", "prune", "--all")
			if r.code != 0 || r.stderr != "" {
				t.Errorf("%+v", r)
			}
			out[i] = r.stdout
		})
	}
	pruning.Wait()
	removed := strings.Fields(strings.Join(out[:], ""))
	slices.Sort(removed)
	if len(slices.Compact(removed)) != len(removed) || len(removed) != unused {
		t.Errorf("removed %q, want each of %d images once", removed, unused)
	}
}

// A pod starts from a source although the image may be removed at any time between its import and the pod's start.
func TestAPodOfASourceStartsWhileImagesArePruned(t *testing.T) {
	h := newHost(t)
	source := "file://" + h.image("source.aci", strings.Replace(appManifest, "example.com/one", "example.com/source", 1))
	done := make(chan struct{})
	var pruning sync.WaitGroup
	for range 2 {
		pruning.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					h.try("image", "prune", "--all")
				}
			}
		})
	}
	defer pruning.Wait()
	defer close(done)
	for range 20 {
		if r := h.try("run", "--detach", "--name", "p", source); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		h.run("rm", "--force", "p")
	}
}
