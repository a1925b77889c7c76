package tests

import (
	"encoding/json"
	"os"
	"testing"

	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// damage does to a file what a power loss may do.
func (n *node) damage(path string) {
	n.Helper()
	if err := os.Truncate(n.path("state/"+path), 0); err != nil {
		n.Fatal(err)
	}
}

// podOf returns the UUID of a container's pod.
func (n *node) podOf(id string) string {
	n.Helper()
	r, err := n.ContainerStatus(n.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	var record struct{ PodUUID string }
	if err == nil {
		err = json.Unmarshal([]byte(r.Info["record"]), &record)
	}
	if err != nil || record.PodUUID == "" {
		n.Fatalf("%v, %v", r, err)
	}
	return record.PodUUID
}

// A record that cannot be read hides no other one, and what it is of can be removed.
func TestDamagedRecordsHideNoOthers(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	other := p.run(p.sandboxConfig())
	other.image = p.image
	sleep := func(p *pod) string { return p.startNew(p.script("sleep 1000")) }
	sound, removed, forgotten, killed, unknown := sleep(p), sleep(p), sleep(p), sleep(p), sleep(p)
	sleep(other)
	for _, id := range []string{removed, forgotten} {
		p.damage("containers/" + id + "/container.json")
	}
	for _, id := range []string{killed, unknown} {
		p.damage("pods/" + p.podOf(id) + "/state.json")
	}
	p.damage("sandboxes/" + other.id + "/sandbox.json")
	p.write(p.path("state/containers/unfinished/container.json.new"), "")
	check := func() {
		t.Helper()
		listed, err := p.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
		if err != nil || len(listed.Containers) != 3 {
			t.Errorf("%v, %v", listed, err)
		}
		sandboxes, err := p.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil || len(sandboxes.Items) != 1 || sandboxes.Items[0].Id != p.id {
			t.Errorf("%v, %v", sandboxes, err)
		}
		if s := p.status(sound); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("sound: %v", s)
		}
		for _, id := range []string{killed, unknown} {
			if s := p.status(id); s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != 255 || s.StartedAt == 0 {
				t.Errorf("pod damaged: %v", s)
			}
		}
	}
	check()
	if _, err := p.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: removed}); err != nil {
		t.Error(err)
	}
	if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: killed}); err != nil {
		t.Error(err)
	}
	check()
	p.kill()
	p.start()
	check()
	surroundings.Eventually(t, "containers with damaged records are removed", func() bool {
		entries, err := os.ReadDir(p.path("state/containers"))
		return err == nil && len(entries) == 3
	})
	if _, err := p.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: unknown}); err != nil {
		t.Error(err)
	}
}
