package server

import (
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pod that has the folder of logs as a volume has no other file made by a link, and holds up no call by a pipe.
func TestLogsAreNoLinksAndNoPipes(t *testing.T) {
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
