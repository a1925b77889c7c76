package server

import (
	"os"
	"path/filepath"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/pods"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container has failed to start whose server was killed before it had told so, also if the stager was started.
func TestContainersOfAServerThatWasKilledInTheStart(t *testing.T) {
	const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	for name, stager := range map[string]pods.Process{
		"before the stager": {}, "after the stager's start": {PID: 1 << 22, Start: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writePod(t, dir, uuid, pods.State{Phase: pods.Starting, Stager: stager})
			s := &Server{pods: pods.Open(dir, "test")}
			l, err := s.lifeOf(records.Container{PodUUID: uuid})
			if err != nil || l.state != runtimeapi.ContainerState_CONTAINER_EXITED || l.code != 128 || l.reason != "StartError" {
				t.Errorf("%+v, %v, want exit code 128, StartError", l, err)
			}
		})
	}
}

// writePod writes a pod without a monitor into the folder of a store, and returns the pod's lock.
func writePod(t *testing.T, dir, uuid string, state pods.State) (lock string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, uuid), 0o700); err != nil {
		t.Fatal(err)
	}
	lock = filepath.Join(dir, uuid, "lock")
	for path, value := range map[string]any{
		filepath.Join(dir, uuid, "plan.json"):  pods.Plan{UUID: uuid, Cgroup: "kurma-cri-test/" + uuid},
		filepath.Join(dir, uuid, "state.json"): state,
		lock:                                   nil,
	} {
		if err := jsonfile.Write(path, value); err != nil {
			t.Fatal(err)
		}
	}
	return lock
}
