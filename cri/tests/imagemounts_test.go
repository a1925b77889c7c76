package tests

import (
	"os"
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"
	"kurma.io/stager/tests/surroundings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func imageMount(target, image, below string) *runtimeapi.Mount {
	return &runtimeapi.Mount{
		ContainerPath: target, Readonly: true, Image: &runtimeapi.ImageSpec{Image: image}, ImageSubPath: below,
	}
}

// A container reads and executes what is in another image, also after the server was killed, and writes nothing there.
func TestImagesAreVolumes(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	registry, _ := dockerregistry.Run(t)
	push(t, registry+"/data:1", busybox(t, func(c *v1.Config) { c.User = "1000" }))
	data := p.pull(registry + "/data:1")
	config := p.script("cat /one | wc -l; /data/bin/busybox wc -l /conf/passwd; touch /data/x /data/etc/x /conf/x 2>/dev/null || echo refused; sleep 1000")
	config.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/host", HostPath: p.path("host"), ImageSubPath: "name"}, // as kubelet says of every sub-path
		imageMount("/data", registry+"/data:1", ""), imageMount("/conf", data, "etc"), imageMount("/one", data, "../../../../../../../../../../etc/passwd"),
	}
	id := p.startNew(config)
	surroundings.Eventually(t, "the container has tried", func() bool { return p.output(config) == "3\n3 /conf/passwd\nrefused\n" })
	for _, m := range p.status(id).Mounts {
		if m.HostPath == "" && m.Image.GetImageRef() != data { // of PullImage
			t.Errorf("mount at %s has the image %q, want %s", m.ContainerPath, m.Image.GetImageRef(), data)
		}
	}
	remove := &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: data}}
	if _, err := p.RemoveImage(ctx, remove); err == nil || !strings.Contains(err.Error(), "in use by container "+id) {
		t.Errorf("removal of an image that is mounted: %v", err)
	}
	p.kill()
	p.start()
	r, err := p.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/data/bin/cat", "/conf/group"}, Timeout: 60})
	if err != nil || !strings.Contains(string(r.GetStdout()), "user:x:1001:") {
		t.Errorf("after the server was killed: %v, %v", r, err)
	}
	if _, err := p.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RemoveImage(ctx, remove); err != nil {
		t.Errorf("removal of an image that was mounted: %v", err)
	}
}

// What cannot be mounted is refused when the container is made, and leaves nothing.
func TestMountsOfImagesAreRefused(t *testing.T) {
	p := newPod(t)
	for want, edit := range map[string]func(*runtimeapi.Mount){
		"writable mount of an image at /data: not supported":  func(m *runtimeapi.Mount) { m.Readonly = false },
		"at /data with a host path: not supported":            func(m *runtimeapi.Mount) { m.HostPath = "/" },
		"at /data without private propagation: not supported": func(m *runtimeapi.Mount) { m.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL },
		`at /data: image "example.com/none": `:                func(m *runtimeapi.Mount) { m.Image.Image = "example.com/none" },
		`at /data: image ` + p.image + ` has no "none"`:       func(m *runtimeapi.Mount) { m.ImageSubPath = "none" },
	} {
		config := p.script("true")
		m := imageMount("/data", p.image, "etc")
		edit(m)
		config.Mounts = []*runtimeapi.Mount{imageMount("/good", p.image, ""), m}
		if _, err := p.createContainer(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	config := p.script("true")
	config.Mounts = []*runtimeapi.Mount{imageMount("/data", p.image, ""), {ContainerPath: "/data", HostPath: p.path("host")}}
	if _, err := p.createContainer(config); err == nil || !strings.Contains(err.Error(), `are both mounted at "/data"`) {
		t.Errorf("an image and a host path at one target: %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if left, _ := os.ReadDir(p.path("state/mounts")); len(left) > 0 || err != nil || strings.Contains(string(mounts), p.path("state/mounts")) {
		t.Errorf("%v is left, %v; mounts\n%s", left, err, mounts)
	}
}

// One image has one ID, whatever registries and repositories it comes from, and is removed by any of its names.
func TestAnImageOfTwoRegistriesIsOne(t *testing.T) {
	n, ctx := newNode(t), t.Context()
	one, _ := dockerregistry.Run(t)
	other, _ := dockerregistry.Run(t)
	refs := []string{one + "/a:1", one + "/b:2", other + "/c:3"}
	for _, ref := range refs {
		push(t, ref, busybox(t, nil))
		if id := n.pull(ref); id != n.pull(refs[0]) {
			t.Errorf("%s has the ID %s", ref, id)
		}
	}
	images, err := n.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil || len(images.Images) != 1 || len(images.Images[0].RepoTags) != 3 || len(images.Images[0].RepoDigests) != 3 {
		t.Errorf("%v, %v", images, err)
	}
	if _, err := n.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: refs[2]}}); err != nil {
		t.Error(err)
	}
	if images, err = n.ListImages(ctx, &runtimeapi.ListImagesRequest{}); err != nil || len(images.Images) != 0 {
		t.Errorf("%v, %v", images, err)
	}
}
