package tests

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// applets are the names of busybox in the test's image.
func applets() []string {
	return []string{"sh", "cat", "cp", "echo", "env", "false", "grep", "hostname", "id", "ip", "ipcs", "kill", "ls", "mkdir", "nc", "ps", "pwd", "rm", "sleep", "stat", "stty", "touch", "true", "tty", "wc", "dd", "mount"}
}

// busybox returns an image of busybox, with the configuration that edit has changed.
func busybox(t *testing.T, edit func(*v1.Config)) v1.Image {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "etc", "tmp", "root"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, applet := range applets() {
		add(tar.Header{Typeflag: tar.TypeLink, Name: "bin/" + applet, Linkname: "bin/busybox"}, nil)
	}
	add(tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/root:/bin/sh\nuser:x:1000:1001::/:/bin/sh\n1234:x:0:0::/:/bin/sh\n"))
	add(tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nuser:x:1001:\nmore:x:2000:user\n1234:x:0:\n"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	one, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, one)
	if err != nil {
		t.Fatal(err)
	}
	config := v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin", "FROM=image"}}
	if edit != nil {
		edit(&config)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config = "amd64", "linux", config
	if image, err = mutate.ConfigFile(image, file); err != nil {
		t.Fatal(err)
	}
	return image
}

// push pushes an image to a registry, and returns its digest.
func push(t *testing.T, ref string, image v1.Image) string {
	t.Helper()
	to, err := name.ParseReference(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(to, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest.String()
}

// pull pulls an image, and returns its ID.
func (n *node) pull(ref string) string {
	n.Helper()
	pulled, err := n.PullImage(context.Background(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		n.Fatal(err)
	}
	return pulled.ImageRef
}

func TestImagesHaveTagsAndDigests(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	registry, _ := dockerregistry.Run(t)
	digest := push(t, registry+"/a/box:1", busybox(t, nil))
	push(t, registry+"/a/box:2", busybox(t, nil))
	other := push(t, registry+"/a/box:3", busybox(t, func(c *v1.Config) { c.User = "1000" }))
	first, second, third := n.pull(registry+"/a/box:1"), n.pull(registry+"/a/box:2"), n.pull(registry+"/a/box@"+other)
	if first != second || first == third {
		t.Errorf("IDs %s, %s, %s", first, second, third)
	}
	for _, ref := range []string{first, registry + "/a/box:1", registry + "/a/box:2", registry + "/a/box@" + digest} {
		status, err := n.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			t.Fatal(err)
		}
		image := status.Image
		if image.GetId() != first || len(image.RepoTags) != 2 || len(image.RepoDigests) != 1 || image.Size == 0 || image.Uid.GetValue() != 0 {
			t.Errorf("%s: %v", ref, image)
		}
	}
	listed, err := n.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(listed.Images) != 2 {
		t.Errorf("%v, %v", listed, err)
	}
	usage, err := n.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil || usage.ImageFilesystems[0].UsedBytes.Value == 0 {
		t.Errorf("%v, %v", usage, err)
	}
	for range 2 { // also one that is not there
		if _, err := n.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: registry + "/a/box:2"}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ref := range []string{first, registry + "/a/box:1", registry + "/no/such:1", "not a reference"} {
		status, err := n.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil || status.Image != nil {
			t.Errorf("%s: %v, %v", ref, status, err)
		}
	}
	if _, err := n.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: third}}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(n.path("state/images"))
	stored := 0
	for _, e := range entries {
		if e.Name()[0] != '.' {
			stored++
		}
	}
	if err != nil || stored != 1 { // the stager
		t.Errorf("%d images are left in the store, %v", stored, err)
	}
}

// kubelet makes a container by the ID that it was given for the name of an image.
func TestContainersOfAnAdministratorsImage(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	file := filepath.Join(environment(t, "STAGER_IMAGES"), "busybox.aci")
	out, err := exec.Command(filepath.Join(environment(t, "STAGER_BIN"), "launcher"), "--state", p.path("state"), "image", "import", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "aci/kurma.io/stager/tests/busybox:1.35.0"}})
	if err != nil || status.Image.GetId() != strings.TrimSpace(string(out)) {
		t.Fatalf("%v, %v, want %s", status, err, out)
	}
	p.image = status.Image.Id
	if got := p.do("echo ran", nil); got != "ran\n" {
		t.Errorf("%q", got)
	}
	if status, err = p.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: p.image}}); err != nil || len(status.Image.GetRepoTags()) != 1 {
		t.Errorf("%v, %v", status, err)
	}
	if _, err := p.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: p.image}}); err != nil {
		t.Error(err)
	}
	if got := p.do("echo still there", nil); got != "still there\n" {
		t.Errorf("%q", got)
	}
	p.image = "sha512-" + strings.Repeat("0", 128)
	if _, err := p.createContainer(p.script("true")); err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("an ID that the store does not have: %v", err)
	}
}

func TestServerSaysWhatItIs(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	version, err := n.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil || version.RuntimeName != "kurma-cri" || version.RuntimeApiVersion != "v1" {
		t.Errorf("%v, %v", version, err)
	}
	conditions := func() map[string]*runtimeapi.RuntimeCondition {
		t.Helper()
		status, err := n.Status(ctx, &runtimeapi.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]*runtimeapi.RuntimeCondition)
		for _, c := range status.Status.Conditions {
			all[c.Type] = c
		}
		return all
	}
	for kind, c := range conditions() {
		if !c.Status {
			t.Errorf("%s: %v", kind, c)
		}
	}
	if err := os.RemoveAll(n.path("net.d")); err != nil {
		t.Fatal(err)
	}
	if c := conditions()["NetworkReady"]; c.Status || c.Reason == "" || c.Message == "" {
		t.Errorf("without a network: %v", c)
	}
	config, err := n.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err != nil || config.Linux.CgroupDriver != runtimeapi.CgroupDriver_CGROUPFS {
		t.Errorf("%v, %v", config, err)
	}
}

// An image that a container is being made of is not removed.
func TestImagesStayWhileContainersAreMade(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/brief:1", busybox(t, func(c *v1.Config) { c.User = "1000" }))
	for range 10 {
		p.image = p.pull(registry + "/brief:1")
		removed := make(chan error, 1)
		go func() {
			_, err := p.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: p.image}})
			removed <- err
		}()
		id, err := p.createContainer(p.script("true"))
		if removeErr := <-removed; (err == nil) == (removeErr == nil) {
			t.Fatalf("made: %v, removed: %v", err, removeErr)
		}
		if err == nil {
			if _, err := p.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
