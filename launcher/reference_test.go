package main

import (
	"strings"
	"testing"
)

// podOf writes the manifest of a pod with an app for each image.
func (h *host) podOf(name string, imageNames ...string) string {
	h.t.Helper()
	var apps []string
	for i, image := range imageNames {
		apps = append(apps, `{"name":"a`+string(rune('0'+i))+`","image":{"name":"`+image+`"}}`)
	}
	return h.text(name, `{"acKind":"PodManifest","acVersion":"0.8.11","apps":[`+strings.Join(apps, ",")+`]}`)
}

// A manifest names images as run does: by what image list prints, NAME:VERSION, and the sources of images, which are
// imported first.
func TestAManifestNamesImagesByReferences(t *testing.T) {
	h := newHost(t)
	h.configure(`"cacheDirectory":"cache"`)
	server := newBlobs(t, unseen)
	web := server.push("team/web:1", layeredImage(t, "web"))
	h.run("image", "import", h.version("example.com/v", "2", h.key), h.version("example.com/v", "3", h.key))
	short := strings.TrimPrefix(h.listed()["example.com/one"].ID, "sha512-")[:12]
	file := h.podOf("pod.json", short, "example.com/v:2", "docker://"+web, web, "example.com/one")
	h.run("validate", file)
	uuid := strings.TrimSpace(h.run("run", "--detach", file))
	plan := h.run("inspect", "--json", uuid)
	want := []string{h.listed()["example.com/one"].ID, h.idOf("example.com/v:2"), h.idOf(web)}
	for _, id := range want {
		if !strings.Contains(plan, `"image":{"id":"`+id) && !strings.Contains(plan, `"id":"`+id+`"`) {
			t.Errorf("the plan lacks %s: %s", id, plan)
		}
	}
	server.server.Close()
	h.run("restart", uuid)
	h.run("rm", "--force", "pod")
	h.starts(file) // what was imported is found without the registry
	h.run("image", "rm", web)
	h.refuse(1, "launcher: import docker://"+web+": ", "run", file)
	h.refuse(1, `app "a0": no such image: "example.com/none:1"`, "run", h.podOf("none.json", "example.com/none:1"))
}

// idOf returns the ID of an image.
func (h *host) idOf(ref string) string {
	h.t.Helper()
	_, rest, _ := strings.Cut(h.run("inspect", "--json", ref), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// --pull decides whether a source is asked: never, always, or for what was not imported before.
func TestPullDecidesWhenImagesAreImported(t *testing.T) {
	h := newHost(t)
	h.configure(`"cacheDirectory":"cache"`)
	server := newBlobs(t, unseen)
	web := server.push("web", layeredImage(t, "first"))
	file := h.podOf("pod.json", web)
	for _, pod := range []string{file, web, "docker://" + web} {
		h.refuse(1, "docker://"+web+": the store does not have this image, and none is imported", "run", "--pull", "never", pod)
	}
	pull := func(policy, pod string) string {
		t.Helper()
		_, _, stderr := h.starts("--pull", policy, pod)
		if stderr != "" {
			t.Errorf("run --pull %s %s: %s", policy, pod, stderr)
		}
		return h.idOf(web)
	}
	first := pull("missing", file)
	server.push("web", layeredImage(t, "second"))
	for _, policy := range []string{"missing", "never"} {
		if id := pull(policy, file); id != first {
			t.Errorf("run --pull %s has imported %s", policy, id)
		}
	}
	second := pull("always", file)
	server.push("web", layeredImage(t, "third"))
	third := pull("always", web)
	if second == first || third == second {
		t.Errorf("run --pull always: %s, %s, %s", first, second, third)
	}
	server.server.Close()
	if r := h.try("run", "--pull", "always", file); r.code != 1 || !strings.Contains(r.stderr, "import docker://"+web) {
		t.Errorf("run --pull always without the registry: %+v", r)
	}
	h.starts("--pull", "always", "example.com/one") // which has no source

	h.refuse(2, "want missing, always, never", "run", "--pull", "newer", file)
}
