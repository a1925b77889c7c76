package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ociImage makes an OCI layout with an image of no layers that says what to execute.
func (h *host) ociImage(entrypoint, command string) string {
	h.t.Helper()
	layout := filepath.Join(h.dir, "layout")
	for _, args := range [][]string{
		{"init", "--layout", layout},
		{"new", "--image", layout + ":3"},
		{"config", "--image", layout + ":3", "--config.entrypoint", entrypoint, "--config.cmd", command, "--config.user", "5:6"},
	} {
		if out, err := exec.Command("umoci", args...).CombinedOutput(); err != nil {
			h.t.Fatalf("umoci %s: %v\n%s", args, err, out)
		}
	}
	return layout
}

// TestImagesAreNamedByTheirSources runs a pod whose stager comes from a web server and whose image
// comes from an OCI layout.
func TestImagesAreNamedByTheirSources(t *testing.T) {
	h := bareHost(t)
	stager := h.stagerImage("stager.aci", "", h.key)
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(stager))))
	defer server.Close()
	h.configure(`"defaultStagerImage":"` + server.URL + `/stager.aci","cacheDirectory":"cache"`)
	layout := h.ociImage("/entry", "word")
	if _, _, stderr := h.starts("file://"+layout, "--", "a"); stderr != "" {
		t.Errorf("warnings: %s", stderr)
	}
	if listed := h.listed(); listed["layout"].Labels["version"] != "3" || listed[stagerName].SignedBy != h.key.Fingerprint() {
		t.Errorf("%+v", listed)
	}
	server.Close() // what was imported is found without it
	h.starts("file://" + layout)
	if err := os.RemoveAll(filepath.Join(h.dir, "cache")); err != nil {
		t.Fatal(err)
	}
	h.refuse(1, "connection refused", "run", "file://"+layout)
}

// A path without a scheme is a pod manifest's or an image's name, and the error says how to name the image in it.
func TestRunOfAPathNamesTheSource(t *testing.T) {
	h := newHost(t)
	t.Chdir(h.dir)
	layout := filepath.Base(h.ociImage("/entry", "word"))
	for _, command := range []string{"run", "validate"} {
		h.refuse(1, "launcher: one.aci is not a pod manifest, which is a JSON object; an image in that file is file://one.aci\n", command, "one.aci")
		h.refuse(1, "an image in that file is file://./one.aci\n", command, "./one.aci")
		h.refuse(1, `launcher: no such image: "./`+layout+`"`+"\n", command, "./"+layout)
		h.refuse(1, `no such image: "./nothing"`, command, "./nothing")
	}
	h.starts("file://./" + layout)
	h.text("pod", "\n {}")
	h.refuse(1, "read pod manifest pod: ", "run", "pod")
}

// A path as the stager is no image's name, and the error says how to name the image in it.
func TestAPathAsTheStagerNamesTheSource(t *testing.T) {
	h := newHost(t)
	h.configure(`"defaultStagerImage":"/opt/stager.aci"`)
	h.refuse(1, `launcher: find stager image: no image is called "/opt/stager.aci"; defaultStagerImage names an image in that file as file:///opt/stager.aci`+"\n", "run", "example.com/one")
}

// TestAnUnsignedStagerOfAServerIsRefused takes the stager from a server that has no signature.
func TestAnUnsignedStagerOfAServerIsRefused(t *testing.T) {
	h := bareHost(t)
	stager := h.stagerImage("stager.aci", "", nil)
	h.run("image", "import", h.image("one.aci", appManifest))
	h.configure(`"defaultStagerImage":"file://` + stager + `","cacheDirectory":"cache"`)
	h.refuse(1, "not signed", "run", "example.com/one")
}

func TestImportOfSourcesNamesWhatIsWrong(t *testing.T) {
	h := bareHost(t)
	h.configure(`"cacheDirectory":"cache","maxImageSize":1000`)
	server := httptest.NewServer(http.FileServer(http.Dir(h.dir)))
	defer server.Close()
	h.text("large.aci", strings.Repeat("x", 2000))
	for source, words := range map[string]string{
		"docker://127.0.0.1:1/x":         "connection refused",
		server.URL + "/none.aci":         "404 Not Found",
		server.URL + "/large.aci":        "maxImageSize",
		"file:///nowhere":                "no such file",
		h.text("empty.aci", ""):          "not an ACI",
		"":                               "the source names no file",
		"file://":                        "the source names no file",
		"http://":                        "the address has no host",
		"https:///x.aci":                 "the address has no host",
		"http://me:secret@127.0.0.1:1/x": "launcher: import http://me:xxxxx@127.0.0.1:1/x: ",
		"http://me:se cret@127.0.0.1:1/": "launcher: import that address: net/url: invalid userinfo\n",
		"docker://127.0.0.1:1/x\x1b[31m": `docker://127.0.0.1:1/x\x1b[31m: repository can only contain the characters`,
		"docker://127.0.0.1:1/UPPER/x:y": "repository can only contain the characters",
	} {
		h.refuse(1, words, "image", "import", source)
	}
}

// TestImagesOfAServerWithTLS imports an image and its signature from a server whose certificate must be trusted.
func TestImagesOfAServerWithTLS(t *testing.T) {
	h := bareHost(t)
	stager := h.stagerImage("stager.aci", "", h.key)
	h.configure(`"cacheDirectory":"cache"`)
	server := httptest.NewUnstartedServer(http.FileServer(http.Dir(filepath.Dir(stager))))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	h.refuse(1, "certificate signed by unknown authority", "image", "import", server.URL+"/stager.aci")
	t.Setenv("SSL_CERT_FILE", h.text("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))))
	h.run("image", "import", server.URL+"/stager.aci")
	if listed := h.listed(); listed[stagerName].SignedBy != h.key.Fingerprint() {
		t.Errorf("%+v", listed)
	}
}
