package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/appc/spec/schema/types"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// tool runs a program of another project.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func newFetcher(t *testing.T) *Fetcher {
	t.Helper()
	surroundings.Root(t)
	dir := t.TempDir()
	store := images.Open(filepath.Join(dir, "images"))
	return &Fetcher{Store: store, Cache: filepath.Join(dir, "cache"), MaxSize: 1 << 30}
}

// imageLayers fill the three layers of an image, the last of which deletes and hides what the others have.
func imageLayers(t *testing.T) []func(root string) {
	write := func(path, content string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return []func(root string){
		func(root string) {
			write(root+"/etc/passwd", "root:x:0:0::/root:/bin/sh\napp:x:7:8::/:/bin/sh\n")
			write(root+"/etc/group", "root:x:0:\nmore:x:99:other,app\n")
			write(root+"/data/old", "old")
			write(root+"/gone", "gone")
			write(root+"/dir/file", "file")
			if err := errors.Join(os.Mkdir(root+"/tmp", 0o777), os.Chmod(root+"/tmp", os.ModeSticky|0o777), os.Link(root+"/dir/file", root+"/dir/hard"), os.Symlink("file", root+"/dir/soft")); err != nil {
				t.Fatal(err)
			}
		},
		func(root string) { write(root+"/tmp/second", "second") },
		func(root string) {
			if err := errors.Join(os.Remove(root+"/gone"), os.RemoveAll(root+"/data"), os.Mkdir(root+"/data", 0o711)); err != nil {
				t.Fatal(err)
			}
			write(root+"/data/new", "new")
		},
	}
}

// ociLayout makes a layout with umoci: an image of imageLayers. It returns LAYOUT and the tag.
func ociLayout(t *testing.T) (dir, tag string) {
	t.Helper()
	dir, tag = filepath.Join(t.TempDir(), "layout"), "1.2"
	image := dir + ":" + tag
	tool(t, "umoci", "init", "--layout", dir)
	tool(t, "umoci", "new", "--image", image)
	for _, fill := range imageLayers(t) {
		bundle := filepath.Join(t.TempDir(), "bundle")
		tool(t, "umoci", "unpack", "--image", image, bundle)
		fill(filepath.Join(bundle, "rootfs"))
		tool(t, "umoci", "repack", "--image", image, bundle)
	}
	tool(t, "umoci", "config", "--image", image, "--config.entrypoint", "/entry", "--config.cmd", "one", "--config.cmd", "two words",
		"--config.env", "A=b=c", "--config.env", "PATH=/bin", "--config.user", "app", "--config.volume", "/data", "--config.volume", "/var/lib/x",
		"--config.exposedports", "6379/tcp", "--config.label", "org.example.Title=a title", "--config.workingdir", "/dir", "--config.stopsignal", "SIGUSR1")
	return dir, tag
}

// buildahLayout makes the image of ociLayout with buildah, which keeps its files in a folder of the test.
func buildahLayout(t *testing.T, tag string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "layout")
	storage := t.TempDir()
	buildah := func(args ...string) string {
		t.Helper()
		return strings.TrimSpace(tool(t, "buildah", append([]string{"--root", storage + "/root", "--runroot", storage + "/run", "--storage-driver", "vfs"}, args...)...))
	}
	image, container := "scratch", ""
	for i, fill := range imageLayers(t) {
		if i > 0 {
			image = fmt.Sprint("layer", i)
			buildah("commit", "--quiet", "--rm", container, image)
		}
		container = buildah("from", image)
		fill(buildah("mount", container))
		buildah("umount", container)
	}
	buildah("config", "--entrypoint", `["/entry"]`, "--cmd", `one "two words"`, "--env", "A=b=c", "--env", "PATH=/bin", "--user", "app",
		"--volume", "/data", "--volume", "/var/lib/x", "--port", "6379/tcp", "--label", "org.example.Title=a title", "--workingdir", "/dir", "--stop-signal", "SIGUSR1", container)
	buildah("commit", "--quiet", "--rm", container, "oci:"+dir+":"+tag)
	return dir
}

// registry is Debian's docker-registry on the loopback device.
type registry struct{ host string }

func newRegistry(t *testing.T) registry {
	t.Helper()
	host, _ := dockerregistry.Run(t)
	return registry{host}
}

// push copies an image of a layout into the registry and returns its source.
func (r registry) push(t *testing.T, layout, tag, name string) string {
	t.Helper()
	tool(t, "skopeo", "copy", "--quiet", "--dest-tls-verify=false", "oci:"+layout+":"+tag, "docker://"+r.host+"/"+name)
	return "docker://" + r.host + "/" + name
}

// checkImage checks the image of ociLayout in a store.
func (f *Fetcher) checkImage(t *testing.T, image *images.Image) {
	t.Helper()
	var m struct {
		App struct {
			Exec              []string
			User, Group       string
			SupplementaryGIDs []int
			WorkingDirectory  string
			Environment       []images.NameValue
			MountPoints       []mountPoint
			Ports             []port
		}
		Annotations []images.NameValue
	}
	if err := json.Unmarshal(image.Manifest.Raw, &m); err != nil {
		t.Fatal(err)
	}
	m.Annotations = slices.DeleteFunc(m.Annotations, func(a images.NameValue) bool { return a.Name == "created" || a.Name == "io.buildah.version" })
	slices.SortFunc(m.App.Environment, func(a, b images.NameValue) int { return strings.Compare(a.Name, b.Name) }) // umoci has them in any order
	got := fmt.Sprintf("%q %s:%s %d %s %v %v %v %v", m.App.Exec, m.App.User, m.App.Group, m.App.SupplementaryGIDs, m.App.WorkingDirectory,
		m.App.Environment, m.App.MountPoints, m.App.Ports, m.Annotations)
	want := `["/entry" "one" "two words"] app:8 [99] /dir [{A b=c} {PATH /bin}] [{data /data} {var-lib-x /var/lib/x}] ` +
		`[{6379-tcp tcp 6379 1}] [{appc.io/docker/cmd ["one","two words"]} {appc.io/docker/entrypoint ["/entry"]} ` +
		`{kurma.io/stager/stop-signal SIGUSR1} {org.example.title a title}]`
	if got != want {
		t.Errorf("manifest\n%s, want\n%s", got, want)
	}
	layers, err := f.Store.Catalog(f.Ring, nil).Layers(image)
	if err != nil || len(layers) != 4 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	merged := mount(t, layers)
	for path, want := range map[string]string{"data/new": "new", "tmp/second": "second", "dir/hard": "file", "dir/soft": "file"} {
		if content, err := os.ReadFile(filepath.Join(merged, path)); string(content) != want {
			t.Errorf("/%s: %q, %v", path, content, err)
		}
	}
	for _, path := range []string{"gone", "data/old", ".wh.gone", "data/.wh..wh..opq"} {
		if _, err := os.Lstat(filepath.Join(merged, path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("/%s is there: %v", path, err)
		}
	}
	for path, want := range map[string]os.FileMode{"tmp": os.ModeDir | os.ModeSticky | 0o777, "data": os.ModeDir | 0o711, "": os.ModeDir | 0o755} {
		if info, err := os.Stat(filepath.Join(merged, path)); err != nil || info.Mode() != want {
			t.Errorf("/%s: mode %v, %v", path, info.Mode(), err)
		}
	}
}

// mount mounts the layers, the topmost first, as the stager's overlay driver does.
func mount(t *testing.T, layers []*images.Image) string {
	t.Helper()
	var dirs []string
	for _, layer := range layers {
		dirs = append(dirs, layer.Rootfs())
	}
	short := t.TempDir() // a mount option has at most a page
	var names []string
	for i, dir := range dirs {
		link := filepath.Join(short, fmt.Sprint(i))
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		names = append(names, link)
	}
	merged := t.TempDir()
	if err := unix.Mount("overlay", merged, "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(names, ":")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(merged, 0); err != nil {
			t.Error(err)
		}
	})
	return merged
}

// A chart or another artifact that a registry or layout keeps (OCI image specification, artifacts) is not imported as an
// image without files.
func TestAnArtifactIsNoImage(t *testing.T) {
	layout := t.TempDir()
	chart := writeBlob(t, layout, "application/vnd.cncf.helm.config.v1+json", "{}")
	writeIndex(t, layout, writeBlob(t, layout, manifestType, manifestOf(chart)))
	image, err := newFetcher(t).Import(t.Context(), "file://"+layout)
	if err == nil || !strings.Contains(err.Error(), `not an image: "application/vnd.cncf.helm.config.v1+json" is not the media type`) {
		t.Errorf("%v, %v", image, err)
	}
}

// TestOneImageFromEverywhere imports one image from a registry, an OCI layout, an OCI archive and an
// archive as docker save writes it, plain and compressed.
func TestOneImageFromEverywhere(t *testing.T) {
	surroundings.Root(t)
	layout, tag := ociLayout(t)
	archives := t.TempDir()
	tool(t, "skopeo", "copy", "--quiet", "oci:"+layout+":"+tag, "oci-archive:"+archives+"/oci.tar:"+tag)
	tool(t, "skopeo", "copy", "--quiet", "oci:"+layout+":"+tag, "docker-archive:"+archives+"/docker.tar:example.com/team/app:"+tag)
	tool(t, "gzip", "-k", archives+"/docker.tar")
	server := newRegistry(t)
	zstd := filepath.Join(t.TempDir(), "zstd")
	tool(t, "skopeo", "copy", "--quiet", "--dest-compress", "--dest-compress-format", "zstd", "oci:"+layout+":"+tag, "oci:"+zstd+":"+tag)
	dockerHost, err := types.SanitizeACIdentifier(server.host)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, ref, image, version string }{
		{"registry", server.push(t, layout, tag, "team/app:"+tag), dockerHost + "/team/app", tag},
		{"registry and latest", server.push(t, layout, tag, "team/other"), dockerHost + "/team/other", "latest"},
		{"layout", layout, "layout", tag},
		{"layout of buildah", buildahLayout(t, tag), "layout", tag},
		{"layout with Zstandard", zstd, "zstd", tag},
		{"OCI archive", "file://" + archives + "/oci.tar", "oci", tag},
		{"docker save", archives + "/docker.tar", "example.com/team/app", tag},
		{"docker save and gzip", archives + "/docker.tar.gz", "example.com/team/app", tag},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFetcher(t)
			image, err := f.Import(t.Context(), tt.ref)
			if err != nil {
				t.Fatal(err)
			}
			if image.Manifest.Name != tt.image || image.Manifest.Version() != tt.version {
				t.Errorf("image %s:%s, want %s:%s", image.Manifest.Name, image.Manifest.Version(), tt.image, tt.version)
			}
			f.checkImage(t, image)
			f.checkCache(t)
			if again := f.Known(tt.ref); again == nil || again.ID != image.ID {
				t.Errorf("known as %v", again)
			}
		})
	}
}

// checkCache checks that no download and no temporary folder is left.
func (f *Fetcher) checkCache(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"parts/*", ".*"} {
		left, err := filepath.Glob(filepath.Join(f.Cache, pattern))
		if err != nil || len(left) > 0 {
			t.Errorf("left in the cache: %v, %v", left, err)
		}
	}
}

// proxy stands before a registry, counts its blobs, and can spoil them.
type proxy struct {
	host  string
	blobs atomic.Int32
	bytes atomic.Int64
}

func newProxy(t *testing.T, r registry, spoil func(n int32, response *http.Response) error) *proxy {
	t.Helper()
	p := &proxy{}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.host})
	forward.FlushInterval = -1
	forward.ErrorLog = log.New(io.Discard, "", 0)
	forward.ModifyResponse = func(response *http.Response) error {
		if !strings.Contains(response.Request.URL.Path, "/blobs/") || response.StatusCode >= 300 || response.Request.Method != http.MethodGet {
			return nil
		}
		p.bytes.Add(response.ContentLength)
		return spoil(p.blobs.Add(1), response)
	}
	server := httptest.NewServer(forward)
	t.Cleanup(server.Close)
	p.host = strings.TrimPrefix(server.URL, "http://")
	return p
}

// cut ends a body after some bytes, though its header says that there are more.
func cut(response *http.Response, after int64) {
	response.Body = io.NopCloser(io.MultiReader(io.LimitReader(response.Body, after), brokenReader{}))
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

func TestADownloadIsResumed(t *testing.T) {
	surroundings.Root(t)
	layout, tag := ociLayout(t)
	server := newRegistry(t)
	server.push(t, layout, tag, "app")
	ranges := 0
	p := newProxy(t, server, func(n int32, response *http.Response) error {
		if response.StatusCode == http.StatusPartialContent {
			ranges++
		} else if response.ContentLength > 100 {
			cut(response, 100)
		}
		return nil
	})
	f := newFetcher(t)
	image, err := f.Import(t.Context(), "docker://"+p.host+"/app")
	if err != nil {
		t.Fatal(err)
	}
	if ranges == 0 {
		t.Error("no download was resumed")
	}
	f.checkImage(t, image)
	f.checkCache(t)
	before := p.blobs.Load()
	if _, err := f.Import(t.Context(), "docker://"+p.host+"/app:latest"); err != nil {
		t.Fatal(err)
	}
	if more := p.blobs.Load() - before; more > 2 { // the two parts of the configuration
		t.Errorf("%d blobs are downloaded again", more)
	}
}

func TestARegistryIsRefused(t *testing.T) {
	surroundings.Root(t)
	layout, tag := ociLayout(t)
	server := newRegistry(t)
	server.push(t, layout, tag, "app")
	altered := newProxy(t, server, func(_ int32, response *http.Response) error {
		data, err := io.ReadAll(response.Body)
		data[len(data)/2] ^= 1
		response.Body = io.NopCloser(bytes.NewReader(data))
		return err
	})
	long := newProxy(t, server, func(int32, *http.Response) error { return nil })
	tests := []struct {
		name, ref, words string
		max              int64
	}{
		{"another content", "docker://" + altered.host + "/app", "digest", 1 << 30},
		{"too large", "docker://" + long.host + "/app", "maxImageSize", 10},
		{"no such image", "docker://" + server.host + "/none", "MANIFEST_UNKNOWN", 1 << 30},
		{"no such tag", "docker://" + server.host + "/app:none", "MANIFEST_UNKNOWN", 1 << 30},
		{"no server", "docker://127.0.0.1:1/app", "connection refused", 1 << 30},
		{"not a name", "docker://a b", "repository can only contain the characters", 1 << 30},
		{"not a digest", "docker://a@sha256:1", "invalid checksum digest", 1 << 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFetcher(t)
			f.MaxSize = tt.max
			image, err := f.Import(t.Context(), tt.ref)
			if err == nil || !strings.Contains(err.Error(), tt.words) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, %v; want one line with %q", image, err, tt.words)
			}
			if all, err := f.Store.List(); err != nil || len(all) != 0 {
				t.Errorf("%d images, %v", len(all), err)
			}
		})
	}
}

// TestSeveralImportAtOnce imports an image by several fetchers with one cache, which download each layer once.
func TestSeveralImportAtOnce(t *testing.T) {
	surroundings.Root(t)
	layout, tag := ociLayout(t)
	server := newRegistry(t)
	server.push(t, layout, tag, "app")
	p := newProxy(t, server, func(int32, *http.Response) error { return nil })
	ref := "docker://" + p.host + "/app"
	f := newFetcher(t)
	errs := make(chan error)
	const imports = 4
	for range imports {
		go func() {
			_, err := f.Import(context.Background(), ref)
			errs <- err
		}()
	}
	for range imports {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := p.blobs.Load(); n != 3+imports { // and its configuration for each import
		t.Errorf("%d blobs are downloaded", n)
	}
	if all, err := f.Store.List(); err != nil || len(all) != 4 {
		t.Errorf("%d images, %v", len(all), err)
	}
	f.checkCache(t)
}
