package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

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
