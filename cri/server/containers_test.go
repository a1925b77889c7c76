package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every list reads all records, and a manifest may have many MB.
func TestARecordHasNoManifest(t *testing.T) {
	var pod translate.Pod
	pod.Manifest = json.RawMessage(`{"acVersion":"0.8.11"}`)
	text, err := json.Marshal(recordOf(records.Sandbox{}, new(runtimeapi.ContainerConfig), translate.Facts{}, pod))
	if err != nil || strings.Contains(string(text), "acVersion") {
		t.Errorf("%s, %v", text, err)
	}
}

// A pod that has the folder of logs as a volume has no other file made by a link, holds up no call by a pipe, and has no
// device opened.
func TestLogsAreRegularFiles(t *testing.T) {
	surroundings.Root(t)
	const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	dir := t.TempDir()
	store, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store, pods: pods.Open(dir, "test")}
	hold(t, writePod(t, dir, uuid, pods.State{Phase: pods.Running}))
	c := records.Container{ID: records.NewID(), PodUUID: uuid, LogPath: filepath.Join(dir, "0.log")}
	if err := store.WriteContainer(c); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(dir, "target")
	for name, test := range map[string]struct {
		make func() error
		ok   bool
	}{
		"nothing": {func() error { return nil }, true},
		"log":     {func() error { return os.WriteFile(c.LogPath, nil, 0o640) }, true},
		"device":  {func() error { return unix.Mknod(c.LogPath, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))) }, false},
		"link":    {func() error { return os.Symlink(target, c.LogPath) }, false},
		"pipe":    {func() error { return unix.Mkfifo(c.LogPath, 0o600) }, false},
	} {
		if err := test.make(); err != nil {
			t.Fatal(err)
		}
		_, err := s.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: c.ID})
		if (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(c.LogPath); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("the link's target is made")
	}
}

// A container is gone before the files are that say how it has ended, and is back if its pod cannot be removed.
func TestAContainerIsRemovedBeforeItsPod(t *testing.T) {
	const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	dir := t.TempDir()
	store, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store, pods: pods.Open(dir, "kurma-cri-test"), config: Config{State: dir}}
	lock := hold(t, writePod(t, dir, uuid, pods.State{Phase: pods.Exited, Exit: new(pods.Exit)}))
	c := records.Container{ID: records.NewID(), Name: "app", PodUUID: uuid}
	if err := store.WriteContainer(c); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	remove := func(ctx context.Context) {
		_, err := s.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		removed <- err
	}
	isGone := func() bool {
		_, err := store.Container(c.ID)
		return errors.Is(err, records.ErrNotFound)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go remove(ctx)
	surroundings.Eventually(t, "the record is gone", isGone)
	cancel()
	if err := <-removed; err == nil || isGone() {
		t.Errorf("the pod cannot be removed: %v", err)
	}
	go remove(t.Context())
	surroundings.Eventually(t, "the record is gone", isGone)
	_ = lock.Close()
	if err := <-removed; err != nil || !isGone() {
		t.Error(err)
	}
	if _, err := s.pods.Get(uuid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod: %v", err)
	}
}

// A container that its stager would refuse for its number of mounts leaves nothing on the host.
func TestContainersOfManyMountsAreRefused(t *testing.T) {
	dir := t.TempDir()
	config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "many"}}
	for i := range 4096 - 7 {
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: fmt.Sprintf("%s/%d", dir, i), ContainerPath: fmt.Sprintf("/v/%d", i)})
	}
	_, err := new(Server).CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{Config: config})
	if want := `container "many": 4089 mounts and devices: want at most 4088: `; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("%d folders were made, %v", len(made), err)
	}
}
