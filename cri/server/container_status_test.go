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

// A container whose pod has come and gone has been created as long as its start has not told so. If the server was killed
// meanwhile, the next one records that it has not started, also if the stager was started.
func TestContainersOfAServerThatWasKilledInTheStart(t *testing.T) {
	const uuid = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	for name, state := range map[string]pods.State{
		"before the stager":        {Phase: pods.Starting},
		"after the stager's start": {Phase: pods.Starting, Stager: pods.Process{PID: 1 << 22, Start: 1}},
		"after the stager's end":   {Phase: pods.Exited, Stager: pods.Process{PID: 1 << 22, Start: 1}, Exit: new(pods.Exit)},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{State: t.TempDir()}
			config.Fill()
			s, err := open(t.Context(), config, "test")
			if err != nil {
				t.Fatal(err)
			}
			writePod(t, filepath.Join(config.State, "pods"), uuid, state)
			r := records.Container{ID: records.NewID(), SandboxID: records.NewID(), PodUUID: uuid}
			if err := s.records.WriteContainer(r); err != nil {
				t.Fatal(err)
			}
			if l, err := s.lifeOf(r); err != nil || l.state != runtimeapi.ContainerState_CONTAINER_CREATED {
				t.Errorf("in the start: %+v, %v", l, err)
			}
			if err := s.recordFailedStarts(); err != nil {
				t.Fatal(err)
			}
			r, err = s.records.Container(r.ID)
			if err != nil {
				t.Fatal(err)
			}
			l, err := s.lifeOf(r)
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
