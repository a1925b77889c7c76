package tests

import (
	"strings"
	"testing"

	"kurma.io/stager/tests/dockerregistry"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An image keeps its registry's name when a mirror has it. The server reads the file at each pull, and kubelet gets a line
// that names a mistake.
func TestAMirrorHasARegistrysImages(t *testing.T) {
	n := newNode(t)
	n.kill()
	n.writeConfig(map[string]any{"registriesDirectory": n.path("certs.d")})
	n.start()
	mirror, _ := dockerregistry.Run(t)
	push(t, mirror+"/box:1", busybox(t, nil))
	file := n.path("certs.d/registry.test/hosts.toml")
	n.write(file, "[host.\"http://"+mirror+"\"]\ncapabilities = [\"pul\"]\n")
	image := &runtimeapi.ImageSpec{Image: "registry.test/box:1"}
	_, err := n.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: image})
	if err == nil || !strings.Contains(err.Error(), file+`: host."http://`+mirror+`".capabilities: "pul": want pull, resolve or push`) {
		t.Errorf("a mistake: %v", err)
	}
	n.write(file, "[host.\"http://"+mirror+"\"]\n")
	p := n.run(n.sandboxConfig())
	p.image = n.pull("registry.test/box:1")
	if got := p.do("echo pulled", nil); got != "pulled\n" {
		t.Errorf("%q", got)
	}
	r, err := n.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: image})
	if tags := r.GetImage().GetRepoTags(); err != nil || len(tags) != 1 || tags[0] != "registry.test/box:1" {
		t.Errorf("%v, %v", r, err)
	}
}
