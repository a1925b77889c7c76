package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestHostPathsAreFound(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(dir+"/real", 0o700), os.Symlink("real", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	sources, err := new(Server).resolveSources(t.Context(), &runtimeapi.ContainerConfig{
		Mounts:  []*runtimeapi.Mount{{HostPath: dir + "/link/new/folder"}, {HostPath: dir + "/link"}, {Image: new(runtimeapi.ImageSpec)}},
		Devices: []*runtimeapi.Device{{HostPath: dir + "/link"}},
	}, nil)
	want := map[string]string{dir + "/link/new/folder": dir + "/real/new/folder", dir + "/link": dir + "/real"}
	if diff := cmp.Diff(want, sources); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for _, c := range []*runtimeapi.ContainerConfig{
		{Mounts: []*runtimeapi.Mount{{HostPath: "relative"}}},
		{Devices: []*runtimeapi.Device{{HostPath: filepath.Join(dir, "missing")}}},
	} {
		if sources, err := new(Server).resolveSources(t.Context(), c, nil); err == nil {
			t.Errorf("%v", sources)
		}
	}
}

// However often kubelet asks for a path that hangs, it is looked up once; and again when that has ended.
func TestAHostPathThatHangsIsLookedUpOnce(t *testing.T) {
	s, began, hang := new(Server), make(chan string, 10), make(chan struct{})
	find := func(path string) (string, error) {
		began <- path
		<-hang
		return path, nil
	}
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() { ended <- s.resolve(ctx, "/hung", find, make(map[string]string)) }()
		surroundings.Eventually(t, "the look-up hangs", func() bool { return len(began) == 1 })
		cancel(context.DeadlineExceeded)
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
	if n := len(began); n != 1 {
		t.Errorf("%d look-ups", n)
	}
	close(hang)
	if err := s.resolve(t.Context(), "/hung", find, make(map[string]string)); err != nil {
		t.Error(err)
	}
}

// An image without a command of its own has its user and variables all the same, whatever their names.
func TestAnImageWithoutACommandHasItsSettings(t *testing.T) {
	raw := `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"a","app":{"exec":[],"user":"7","group":"8","environment":[{"name":"A","value":"1"}]}}`
	got, err := describeApp(&images.Image{ID: "sha512-1", Manifest: &images.Manifest{Raw: []byte(raw), Annotations: map[string]string{
		names.EntrypointAnnotation: "[]", names.CommandAnnotation: "[]", names.EnvironmentAnnotation: `["f%%=()=x"]`,
	}}})
	want := translate.Image{
		ID: "sha512-1", User: "7", Group: "8", Entrypoint: []string{}, Command: []string{},
		Env: []translate.Variable{{Name: "A", Value: "1"}, {Name: "f%%", Value: "()=x"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}
