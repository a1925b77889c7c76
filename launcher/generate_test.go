package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// planned returns the Stager Manifest of a pod, without the name that its app's image was asked for by.
func (h *host) planned(pod string) map[string]any {
	h.t.Helper()
	var inspected struct{ Manifest map[string]any }
	if err := json.Unmarshal([]byte(h.run("inspect", "--json", pod)), &inspected); err != nil {
		h.t.Fatal(err)
	}
	for _, app := range inspected.Manifest["pod"].(map[string]any)["apps"].([]any) {
		delete(app.(map[string]any)["image"].(map[string]any), "name")
	}
	return inspected.Manifest
}

// What generate prints starts the same pod: the stager gets the same manifest, whatever options the first one had.
func TestGenerateStartsTheSamePod(t *testing.T) {
	h := newHost(t)
	files := t.TempDir()
	for _, options := range []string{
		"", "--exec /y --user 7:8 --env A=c --env B=d", "--workdir /w --memory 64m --cpus 1.5", "--cap-add NET_ADMIN --cap-drop MKNOD", "--privileged",
		"--read-only --tmpfs /tmp --tmpfs /run:mode=700", "--label a=b --label c --hostname other", "--net host", "--net none",
		"--volume data:/d:ro --volume other:/o --volume " + files + ":/files:ro", "--volume v=" + files,
		"--restart always --exit-policy failure --stop-timeout 90", "--interactive --tty", "--exit-policy never",
	} {
		h.run(append(append([]string{"run", "--detach", "--name", "p"}, strings.Fields(options)...), "example.com/one")...)
		want := h.planned("p")
		var generated struct {
			Manifest json.RawMessage
			Options  []string
		}
		if err := json.Unmarshal([]byte(h.run("generate", "--json", "p")), &generated); err != nil {
			t.Fatal(err)
		}
		r := h.try("generate", "p")
		file := h.text("p.json", r.stdout)
		h.run("rm", "--force", "p")
		again := h.try(append(append([]string{"run", "--detach"}, generated.Options...), file)...)
		if again.code != 0 {
			t.Errorf("%s: %+v of %s", options, again, r.stdout)
			continue
		}
		have := h.planned("p")
		if strings.Contains(options, "--workdir") {
			if !strings.Contains(r.stderr, "makeWorkingDirectory in defaultStagerConfig does") {
				t.Errorf("%s: %s", options, r.stderr)
			}
			delete(want["stagerConfig"].(map[string]any), "makeWorkingDirectory")
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s: %s", options, diff)
		}
		h.run("rm", "--force", "p")
	}
}

// The lines on stderr make a service of the pod: with the options that no manifest has.
func TestGeneratePrintsTheLinesOfAService(t *testing.T) {
	h := newHost(t)
	defer h.run("rm", "--force", "web")
	h.run("run", "--detach", "--name", "web", "--restart", "always", "example.com/one")
	h.run("stop", "web") // of a pod that has ended, too
	r := h.try("generate", "web")
	const want = `launcher: no manifest has these options: launcher run --detach --restart always --exit-policy all web.json
launcher: these lines make the pod a service:
  launcher generate web >/etc/kurma/pods/web.json
  echo 'OPTIONS=--restart always --exit-policy all' >/etc/kurma/pods/web.env
  launcher stop web
  systemctl enable --now kurma-pod@web.service
`
	if r.code != 0 || r.stderr != want || !json.Valid([]byte(r.stdout)) || !strings.Contains(r.stdout, `"name": "example.com/one"`) {
		t.Errorf("generate: %+v, want %s", r, want)
	}
	unit := string(must(os.ReadFile("../tools/release/debian/kurma-launcher/kurma-pod@.service")))
	for _, line := range []string{"EnvironmentFile=-/etc/kurma/pods/%i.env\n", " $OPTIONS /etc/kurma/pods/%i.json\n"} {
		if !strings.Contains(unit, line) {
			t.Errorf("the unit has no %q", line)
		}
	}
}

// The image in a file is named so that the manifest works in any folder.
func TestGenerateNamesFilesByWholePaths(t *testing.T) {
	h := newHost(t)
	h.configure(`"cacheDirectory":"cache"`)
	t.Chdir(h.dir)
	layout := filepath.Base(h.ociImage("/entry", "word"))
	h.run("run", "--detach", "--name", "p", "file://./"+layout)
	defer h.run("rm", "--force", "p")
	if out := h.run("generate", "p"); !strings.Contains(out, `"name": "file://`+filepath.Join(h.dir, layout)+`"`) {
		t.Error(out)
	}
}
