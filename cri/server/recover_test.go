package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/tests/surroundings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A server removes what pulls of a server that was killed have left: images that its index has not, their layers, and
// files of the cache; and what its index has without an image.
func TestLeftoversOfPullsAreRemoved(t *testing.T) {
	surroundings.Root(t)
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
	s.removePulled(t.Context())
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

// A pod whose start the server did not finish is ended: it may lack its limits, and kubelet was told that it failed.
func TestPodsInTheirStartAreRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		phase   pods.Phase
		started time.Time // by the record
		want    runtimeapi.ContainerState
	}{
		"starting":         {pods.Starting, time.Time{}, runtimeapi.ContainerState_CONTAINER_EXITED},
		"without limits":   {pods.Running, time.Time{}, runtimeapi.ContainerState_CONTAINER_EXITED},
		"stopping":         {pods.Stopping, time.Time{}, runtimeapi.ContainerState_CONTAINER_EXITED},
		"started, running": {pods.Running, time.Now(), runtimeapi.ContainerState_CONTAINER_RUNNING},
	} {
		t.Run(name, func(t *testing.T) {
			const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
			dir := t.TempDir()
			store, err := records.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := &Server{records: store, pods: pods.Open(dir, "kurma-cri-test")}
			runMonitor(t, dir, uuid, test.phase)
			c := records.Container{ID: records.NewID(), PodUUID: uuid, Started: test.started}
			if err := store.WriteContainer(c); err != nil {
				t.Fatal(err)
			}
			s.findLeftovers(t.Context())
			if c, err = store.Container(c.ID); err != nil {
				t.Fatal(err)
			}
			l, err := s.lifeOf(c)
			failed := test.want == runtimeapi.ContainerState_CONTAINER_EXITED
			if err != nil || l.state != test.want || failed != (l.reason == "StartError") {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

// Composed mounts keep volumes in use: those stay that a container needs for its start.
func TestMountsStayForAContainerThatCanStart(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	store, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store, pods: pods.Open(dir, "kurma-cri-test"), config: Config{State: dir}}
	for name, c := range map[string]records.Container{
		"created": {}, "killed in its start": {PodUUID: "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"}, "failed": {StartError: "no"},
	} {
		c.ID = records.NewID()
		mounts := s.composedDir(c.ID)
		if err := errors.Join(store.WriteContainer(c), os.MkdirAll(filepath.Join(mounts, "0"), 0o700)); err != nil {
			t.Fatal(err)
		}
		s.removeLeftovers(t.Context(), s.findLeftovers(t.Context()))
		if _, err := os.Stat(mounts); (err == nil) != (name == "created") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// runMonitor writes a pod in that phase, whose monitor is a process that ends with the test.
func runMonitor(t *testing.T, dir, uuid string, phase pods.Phase) {
	t.Helper()
	lock := hold(t, writePod(t, dir, uuid, pods.State{Phase: phase}))
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
	state := pods.State{Phase: phase, Monitor: pods.Process{PID: monitor.Process.Pid, Start: stat.Start}}
	if err := errors.Join(lock.Close(), jsonfile.Write(filepath.Join(dir, uuid, "state.json"), state)); err != nil {
		t.Fatal(err)
	}
}

// The server answers while leftovers are removed, which may take long: here while the images are in use.
func TestServesWhileLeftoversAreRemoved(t *testing.T) {
	surroundings.Root(t)
	dir := t.TempDir()
	config := Config{State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "socket"), TrustDirectory: t.TempDir()}
	config.Fill()
	release, err := images.Open(filepath.Join(config.State, "images")).Pin()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config, "test") }()
	connection, err := grpc.NewClient("unix://"+config.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	soon, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	client := runtimeapi.NewRuntimeServiceClient(connection)
	if _, err := client.Version(soon, &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// What removes leftovers may make the folder of pods meanwhile.
	surroundings.Eventually(t, "the state can be removed", func() bool { return os.RemoveAll(config.State) == nil })
}

// What calls make while leftovers are removed is not removed.
func TestNewThingsAreNotLeftovers(t *testing.T) {
	surroundings.Root(t)
	address, config := serve(t, registry.New()), Config{State: t.TempDir()}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	left := s.findLeftovers(t.Context())
	const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	writePod(t, filepath.Join(config.State, "pods"), uuid, pods.State{Phase: pods.Starting})
	sandbox := records.Sandbox{ID: records.NewID(), Phase: records.Making}
	mounts := s.composedDir(records.NewID())
	if err := errors.Join(s.records.WriteSandbox(sandbox), os.MkdirAll(mounts, 0o700)); err != nil {
		t.Fatal(err)
	}
	s.removeLeftovers(t.Context(), left)
	if _, err := s.pods.Get(uuid); err != nil {
		t.Error(err)
	}
	if _, err := s.records.Sandbox(sandbox.ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mounts); err != nil {
		t.Error(err)
	}
	pullBeside(t, s, address)
}

// pullBeside pulls an image while the leftovers of pulls are removed again and again.
func pullBeside(t *testing.T, s *Server, address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var removals sync.WaitGroup
	removals.Go(func() {
		for ctx.Err() == nil {
			if _, err := s.removeStrayImages(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	defer removals.Wait()
	defer cancel()
	for i := range 20 {
		image, err := random.Image(100, 1)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.ParseReference(fmt.Sprintf("%s/box:%d", address, i))
		if err == nil {
			err = remote.Write(ref, image)
		}
		if err != nil {
			t.Fatal(err)
		}
		wanted := &runtimeapi.ImageSpec{Image: ref.String()}
		if _, err := s.PullImage(ctx, &runtimeapi.PullImageRequest{Image: wanted}); err != nil {
			t.Fatal(err)
		}
		if r, err := s.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: wanted}); err != nil || r.GetImage() == nil {
			t.Fatalf("image %d has gone: %v", i, err)
		}
	}
}
