package kubernetes

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// The specs of critest, but for those that need an NRI socket. Its images are in registries of the internet: here they
// are made of Debian's busybox and nginx.
func TestCRITest(t *testing.T) {
	c := &cluster{T: t, dir: t.TempDir()}
	n := c.makeNode(1)
	c.nodes = []*node{n}
	digest := serveCRITestImages(c)
	n.writeConfigs(nil)
	for _, host := range []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io"} {
		c.write(n.name+"/certs.d/"+host+"/hosts.toml", fmt.Sprintf("[host.%q]\n", "http://"+registry))
	}
	n.startAgent()
	n.connect()
	n.startServer()
	program, err := os.ReadFile(environment(t, "CRITEST"))
	c.must(err)
	// The program pulls one image by its digest, which no other image has.
	const theirs = "sha256:9700f9a2f5bf2c45f2f605a0bd3bce7cf37420ec9d3ed50ac2758413308766bf"
	if !bytes.Contains(program, []byte(theirs)) {
		t.Fatalf("%s does not name the image %s", os.Getenv("CRITEST"), theirs)
	}
	c.must(os.WriteFile(n.path("critest"), bytes.ReplaceAll(program, []byte(theirs), []byte(digest)), 0o755))
	report := n.path("report.xml")
	cmd := exec.CommandContext(t.Context(), "nsenter", "--target", strconv.Itoa(n.agent.Process.Pid), "--mount", "--net", "--pid", "--uts",
		"--ipc", "--cgroup", n.path("critest"), "-runtime-endpoint", "unix:///run/kurma-cri/kurma-cri.sock", "-ginkgo.no-color",
		"-ginkgo.junit-report", report)
	out, runErr := cmd.CombinedOutput()
	passed, failed := logSpecs(c, report)
	if runErr != nil || failed > 0 || passed == 0 {
		t.Errorf("%d passed, %d failed, %v:\n%s", passed, failed, runErr, out)
	}
	c.nothingIsLeft()
}

// logSpecs logs the specs that failed or were skipped, each with its reason. A benchmark is none.
func logSpecs(c *cluster, report string) (passed, failed int) {
	c.Helper()
	text, err := os.ReadFile(report)
	c.must(err)
	var all struct {
		Specs []struct {
			Name    string `xml:"name,attr"`
			Status  string `xml:"status,attr"`
			Skipped struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Failure struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
		} `xml:"testsuite>testcase"`
	}
	c.must(xml.Unmarshal(text, &all))
	for _, s := range all.Specs {
		switch {
		case !strings.HasPrefix(s.Name, "[It]") || strings.Contains(s.Name, "benchmark"):
		case s.Status == "passed":
			passed++
		case s.Status == "skipped" || s.Status == "pending":
			c.Logf("%s: %s %s", s.Status, s.Name, s.Skipped.Message)
		default:
			failed++
			c.Logf("%s: %s: %s", s.Status, s.Name, s.Failure.Message)
		}
	}
	c.Logf("%d passed, %d failed", passed, failed)
	return passed, failed
}

// serveCRITestImages serves the images of critest, which have the same files, and returns the digest of the one that is
// pulled by its digest.
func serveCRITestImages(c *cluster) (digest string) {
	c.Helper()
	layers := [][]byte{c.layer(), c.aciLayer(filepath.Join(environment(c.T, "STAGER_IMAGES"), "nginx.aci")), c.critestLayer()}
	r := newImages()
	defer r.serve(c)
	add := func(name string, settings map[string]any) string {
		settings["Env"] = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		settings["Labels"] = map[string]string{"name": name} // so that each is another image
		return r.add(c, name, settings, layers...)
	}
	for name, user := range map[string]string{
		"test-image-user-uid": "1002", "test-image-user-username": "www-data", "test-image-user-uid-group": "1003:users",
		"test-image-user-username-group": "www-data:100", "test-image-predefined-group": "1000",
	} {
		add(name+":latest", map[string]any{"User": user, "Cmd": []string{"sh"}})
	}
	for _, name := range []string{
		"busybox:1.29-2", "pause:3.9", "test-image-latest:latest", "test-image-tag:test", "test-image-tag:all", "test-image-tags:1",
		"test-image-1:latest", "test-image-2:latest", "test-image-3:latest",
	} {
		add(name, map[string]any{"Cmd": []string{"sh"}})
	}
	r.tags["test-image-tags:2"], r.tags["test-image-tags:3"] = r.tags["test-image-tags:1"], r.tags["test-image-tags:1"]
	add("nonewprivs:1.3", map[string]any{"Entrypoint": []string{"/nnp"}})
	add("httpd:2.4.39-4", map[string]any{"Cmd": []string{"sh", "-c", "echo httpd; exec nginx"}})
	add("nginx:1.14-2", map[string]any{"Cmd": []string{"nginx"}})
	add("hostnet-nginx-"+runtime.GOARCH+":latest", map[string]any{"Cmd": []string{"nginx", "-c", "/etc/nginx/12003.conf"}})
	return add("test-image-digest:latest", map[string]any{"Cmd": []string{"sh"}})
}

// critestLayer returns the files that images of critest have beside those of their programs.
func (c *cluster) critestLayer() []byte {
	c.Helper()
	escalate := exec.Command("gcc", "-static", "-x", "c", "-o", c.path("nnp"), "-")
	escalate.Stdin = strings.NewReader("#include <stdio.h>\n#include <unistd.h>\n" +
		`int main(void) { printf("Effective uid: %d\n", geteuid()); return 0; }`)
	if out, err := escalate.CombinedOutput(); err != nil {
		c.Fatalf("gcc: %v: %s", err, out)
	}
	program, err := os.ReadFile(c.path("nnp"))
	c.must(err)
	shell, err := os.ReadFile("/bin/busybox")
	c.must(err)
	server := func(port int) string {
		return fmt.Sprintf("daemon off; pid /var/run/nginx.pid; error_log stderr; events {}\n"+
			"http { access_log off; server { listen %d; root /html; } }\n", port)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(name, text string, mode int64) {
		c.must(w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}))
		_, err := io.WriteString(w, text)
		c.must(err)
	}
	c.must(w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "var/run", Mode: 0o755}))
	add("nnp", string(program), 0o4755)
	// Debian's busybox lacks two commands, and its shell would not look for ls, which a spec masks.
	add("bin/pgrep", "#!/bin/sh\nexec pidof $1\n", 0o755)
	add("bin/ipcs", "#!/bin/sh\nexec cat /proc/sysvipc/shm\n", 0o755)
	add("bin/sh", string(bytes.Replace(shell, []byte("\x00ls\x00"), []byte("\x00lr\x00"), 1)), 0o755)
	add("html/index.html", "critest\n", 0o644)
	add("etc/nginx/nginx.conf", server(80), 0o644)
	add("etc/nginx/12003.conf", server(12003), 0o644)
	add("etc/passwd", "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"+
		"default-user:x:1000:1000::/:/bin/sh\n", 0o644)
	add("etc/group", "root:x:0:\nwww-data:x:33:\nusers:x:100:\nnogroup:x:65534:\ndefault-user:x:1000:\n"+
		"group-defined-in-image:x:50000:default-user\n", 0o644)
	c.must(w.Close())
	return layer.Bytes()
}

// aciLayer returns the files of an App Container image.
func (c *cluster) aciLayer(aci string) []byte {
	c.Helper()
	file, err := os.Open(aci)
	c.must(err)
	defer file.Close()
	plain, err := gzip.NewReader(file)
	c.must(err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		c.must(err)
		if name, ok := strings.CutPrefix(h.Name, "rootfs/"); ok && name != "" {
			h.Name = name
			h.Linkname = strings.TrimPrefix(h.Linkname, "rootfs/")
			c.must(w.WriteHeader(h))
			_, err := io.Copy(w, r)
			c.must(err)
		}
	}
	c.must(w.Close())
	return layer.Bytes()
}
