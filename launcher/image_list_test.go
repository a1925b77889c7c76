package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func checkWidth(t *testing.T, table string) {
	t.Helper()
	for line := range strings.Lines(table) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a row of %d characters: %s", n, line)
		}
	}
}

// Rows of image list and ps fit a terminal of 80 columns, and --no-trunc prints what they leave out.
func TestRowsFitATerminal(t *testing.T) {
	h := newHost(t)
	name, version := "registry.example.com/team/"+strings.Repeat("long-", 20)+"name", strings.Repeat("1.0.", 20)+"0"
	long := h.image("long.aci", strings.Replace(strings.Replace(appManifest, "example.com/one", name, 1), `"app":`, `"labels":[{"name":"version","value":"`+version+`"},{"name":"os","value":"linux"},{"name":"arch","value":"amd64"}],"app":`, 1))
	id := strings.TrimSpace(h.run("image", "import", long))
	out := h.onTerminal("image", "list")
	checkWidth(t, out)
	if !strings.Contains(out, "\n"+id[7:19]+"  registry.") || !strings.Contains(out, "ong-name  1.0.1") || !strings.Contains(out, "  yes\n") {
		t.Errorf("image list:\n%s", out)
	}
	for _, word := range []string{id, name, version, "amd64", "by " + h.key.Fingerprint()} {
		if out := h.run("image", "list", "--no-trunc"); !strings.Contains(out, word) {
			t.Errorf("image list --no-trunc has no %s:\n%s", word, out)
		}
	}
	if out := h.run("image", "list"); !strings.Contains(out, id[7:19]+"  "+name+"  "+version) {
		t.Errorf("image list in a pipe:\n%s", out)
	}
	pod := strings.Repeat("pod-", 12) + "x"
	uuid := strings.TrimSpace(h.run("run", "--detach", "--name", pod, name))
	defer h.run("rm", "--force", uuid[:8])
	out = h.onTerminal("ps")
	checkWidth(t, out)
	if !strings.Contains(out, "\n"+uuid[:8]+"  pod-") {
		t.Errorf("ps:\n%s", out)
	}
	if out := h.run("ps", "--no-trunc"); !strings.Contains(out, uuid+"  "+pod+"  running") {
		t.Errorf("ps --no-trunc:\n%s", out)
	}
}

// Every command takes the short IDs that image list prints, and refuses one that several images have.
func TestShortIDsAreTaken(t *testing.T) {
	h := newHost(t)
	one := h.listed()["example.com/one"].ID
	short := one[7:19]
	if ids := strings.Fields(h.run("image", "list", "--quiet")); len(ids) != 2 || !slices.Contains(ids, short) {
		t.Errorf("image list --quiet: %q", ids)
	}
	if ids := strings.Fields(h.run("image", "list", "-q", "--no-trunc")); len(ids) != 2 || !slices.Contains(ids, one) {
		t.Errorf("image list --quiet --no-trunc: %q", ids)
	}
	if out := h.run("image", "list", "--quiet", "--json"); !strings.Contains(out, `"id":"`+one+`"`) {
		t.Errorf("image list --quiet --json: %s", out)
	}
	for _, args := range [][]string{{"inspect", short}, {"validate", short}, {"image", "export", short, filepath.Join(h.dir, "one")}} {
		h.run(args...)
	}
	h.starts(short)
	other := filepath.Join(h.dir, "images", one[:30]+strings.Repeat("0", len(one)-30))
	if err := os.CopyFS(other, os.DirFS(filepath.Join(h.dir, "images", one))); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"run", short}, {"validate", short}, {"inspect", short}, {"image", "rm", short}, {"image", "export", short, filepath.Join(h.dir, "two")}} {
		h.refuse(1, `"sha512-`+short+`" is the start of 2 image IDs`, args...)
	}
	if err := os.RemoveAll(other); err != nil {
		t.Fatal(err)
	}
	h.run("image", "rm", short)
	h.refuse(1, "no such image", "run", short)
}
