package tests

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// linked returns busybox's image with the user "user" and one more layer with symbolic links, by their names.
func linked(t *testing.T, links map[string]string) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for name, target := range links {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}); err != nil {
			t.Fatal(err)
		}
	}
	one, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), w.Close() })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(busybox(t, func(c *v1.Config) { c.User = "user" }), one)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// A volume at /run and kubelet's token at /var/run/secrets are one inside the other, as in an image whose /var/run is a
// link to /run. The image's resolv.conf leads there also, but the container has the sandbox's.
func TestMountsFollowTheImagesLinks(t *testing.T) {
	p := newPod(t)
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/linked:1", linked(t, map[string]string{
		"var/run": "/run", "etc/resolv.conf": "/run/resolve/stub.conf", "etc/hostname": "/run/hostname",
	}))
	p.image = p.pull(registry + "/linked:1")
	p.write(p.path("token/token"), "token\n")
	const token = "/var/run/secrets/kubernetes.io/serviceaccount"
	for _, target := range []string{"/run", "/var/run"} {
		got := p.do("id -un; cat "+token+"/token; ls -d /run/*; stat -c %F /etc/resolv.conf; grep -c $(hostname) /etc/hostname", func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{
				{HostPath: p.path("token"), ContainerPath: token, Readonly: true}, {HostPath: p.path("run" + target), ContainerPath: target},
			}
		})
		if want := "user\ntoken\n/run/hostname\n/run/secrets\nregular file\n1\n"; got != want {
			t.Errorf("a volume at %s: %q, want %q", target, got, want)
		}
	}
	config := p.script("true")
	config.Mounts = []*runtimeapi.Mount{{HostPath: p.path("a"), ContainerPath: "/run"}, {HostPath: p.path("b"), ContainerPath: "/var/run"}}
	if _, err := p.createContainer(config); err == nil || !strings.Contains(err.Error(), `are both mounted at "/run"`) {
		t.Errorf("two mounts that the image's links lead to one folder: %v", err)
	}
}
