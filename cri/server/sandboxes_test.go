package server

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCgroupParentsOfBothDrivers(t *testing.T) {
	for _, test := range []struct{ parent, driver, want string }{
		{"", driverCgroupfs, defaultParent},
		{"/kubepods/besteffort/pod1", driverCgroupfs, "kubepods/besteffort/pod1"},
		{"kubepods-besteffort-pod1.slice", driverSystemd, "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"},
		{"/kubepods.slice/kubepods-pod1.slice", driverSystemd, "kubepods.slice/kubepods-pod1.slice"},
		{"a.slice", driverCgroupfs, "a.slice"},
	} {
		got, err := cgroupParent(test.parent, test.driver)
		if err != nil || got != test.want {
			t.Errorf("%q, %s: %q, %v, want %q", test.parent, test.driver, got, err, test.want)
		}
	}
	if _, err := cgroupParent("/a/../../b", driverCgroupfs); err == nil {
		t.Error("a parent outside is accepted")
	}
}

// A sandbox has the hostname that kubelet asks for, or one made from its name, which may be longer than a hostname.
func TestASandboxHasAHostname(t *testing.T) {
	long := strings.Repeat("a", 62)
	for _, test := range []struct{ hostname, name, want string }{
		{"web", "other", "web"},
		{"web.ns.svc.cluster.local", "other", "web.ns.svc.cluster.local"},
		{"", "web.example-1", "web.example-1"},
		{"", long + "-b-c", long},
		{"", long + ".b.c", long + ".b"},
		{"", long + "bcd", long + "b"},
		{long + "-bcd", "other", long},
	} {
		got, err := newSandbox(&runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: test.name, Uid: "u", Namespace: "n"}, Hostname: test.hostname,
		}, "", driverCgroupfs)
		if err != nil || got.Hostname != test.want {
			t.Errorf("%q, %q: %q, %v, want %q", test.hostname, test.name, got.Hostname, err, test.want)
		}
	}
}

// A sandbox is stopped although one of its containers is removed meanwhile, and does not wait for the removal of one
// that has ended. The mounts of one that was not started go.
func TestASandboxIsStoppedWhileItsContainersAreRemoved(t *testing.T) {
	surroundings.Root(t)
	const endedPod, runningPod = "0b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c", "1b4c1a3e-2f7d-4a51-9c55-1f0e6d1a2b3c"
	dir := t.TempDir()
	store, err := records.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{records: store, pods: pods.Open(dir, "test"), sandboxes: new(sandboxes.Maker), config: Config{State: dir}}
	writePod(t, dir, endedPod, pods.State{Phase: pods.Exited})
	hold(t, writePod(t, dir, runningPod, pods.State{Phase: pods.Running}))
	sandbox := records.Sandbox{ID: records.NewID(), Phase: records.Ready, Name: "pod", HostNetwork: true, HostIPC: true}
	ended := records.Container{ID: records.NewID(), SandboxID: sandbox.ID, PodUUID: endedPod}
	running := records.Container{ID: records.NewID(), SandboxID: sandbox.ID, PodUUID: runningPod}
	created := records.Container{ID: records.NewID(), SandboxID: sandbox.ID}
	if err := errors.Join(store.WriteSandbox(sandbox), store.WriteContainer(ended), store.WriteContainer(running),
		store.WriteContainer(created), os.MkdirAll(filepath.Join(s.composedDir(created.ID), "0"), 0o700)); err != nil {
		t.Fatal(err)
	}
	removed, err := s.locks.take(t.Context(), running.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.locks.take(t.Context(), ended.ID); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error)
	go func() {
		_, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.ID})
		stopped <- err
	}()
	surroundings.Eventually(t, "the call waits for the container that runs", func() bool {
		s.locks.mu.Lock()
		defer s.locks.mu.Unlock()
		return s.locks.held[running.ID].users == 2
	})
	if err := store.RemoveContainer(running.ID); err != nil {
		t.Fatal(err)
	}
	removed()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if r, err := store.Sandbox(sandbox.ID); err != nil || r.Phase != records.Stopped {
		t.Errorf("%s, %v", r.Phase, err)
	}
	if _, err := os.Stat(s.composedDir(created.ID)); err == nil {
		t.Error("mounts of a container that cannot start any more stay")
	}
}

// hold locks the lock of a pod as its monitor does, until the file is closed and at most until the test ends.
func hold(t *testing.T, lock string) *os.File {
	t.Helper()
	file, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &whole); err != nil {
		t.Fatal(err)
	}
	return file
}
