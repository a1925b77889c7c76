package server

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/tests/surroundings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A server removes what pulls of a server that was killed have left: images that its index has not, their layers, and
// files of the cache; and what its index has without an image.
func TestLeftoversOfPullsAreRemoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root")
	}
	address, config := serve(t, registry.New()), Config{State: t.TempDir()}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string]string)
	for _, tag := range []string{"kept", "stray", "gone"} {
		image, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(address + "/box:" + tag)
		if err == nil {
			err = remote.Write(ref, image)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref.String()}})
		if err != nil {
			t.Fatal(err)
		}
		ids[tag] = r.ImageRef
	}
	archive := filepath.Join(s.cacheDir(), ".archive-1")
	if err := errors.Join(s.index.Remove(ids["stray"]), os.RemoveAll(filepath.Join(config.State, "images", ids["gone"])), os.Mkdir(archive, 0o700)); err != nil {
		t.Fatal(err)
	}
	s.recoverState(t.Context())
	all, err := s.images.List()
	if err != nil || len(all) != 2 { // the image and its layer
		t.Errorf("%v, %v", all, err)
	}
	listed, err := s.index.All()
	if err != nil || len(listed) != 1 || listed[0].ID != ids["kept"] {
		t.Errorf("%v, %v", listed, err)
	}
	if _, err := os.Stat(archive); err == nil {
		t.Error("a folder of an import is left")
	}
}

// A pod whose start nobody waits for any more is ended: its container counted as created, and kubelet started another.
func TestPodsInTheirStartAreRemoved(t *testing.T) {
	const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	dir := t.TempDir()
	store, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store, pods: pods.Open(dir, "kurma-cri-test")}
	lock := hold(t, writePod(t, dir, uuid, pods.State{Phase: pods.Starting}))
	monitor := exec.Command("sleep", "1000")
	monitor.ExtraFiles = []*os.File{lock}
	if err := surroundings.Start(monitor); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = monitor.Process.Kill(), monitor.Wait() })
	stat, err := procstat.Read(monitor.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	state := pods.State{Phase: pods.Starting, Monitor: pods.Process{PID: monitor.Process.Pid, Start: stat.Start}}
	if err := errors.Join(lock.Close(), jsonfile.Write(filepath.Join(dir, uuid, "state.json"), state)); err != nil {
		t.Fatal(err)
	}
	c := records.Container{ID: records.NewID(), PodUUID: uuid}
	if err := store.WriteContainer(c); err != nil {
		t.Fatal(err)
	}
	if err := s.removeStrayPods(t.Context()); err != nil {
		t.Error(err)
	}
	l, err := s.lifeOf(c)
	if err != nil || l.state != runtimeapi.ContainerState_CONTAINER_EXITED || l.reason != "StartError" {
		t.Errorf("%+v, %v", l, err)
	}
}
