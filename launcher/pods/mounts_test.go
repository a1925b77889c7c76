package pods

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Mounts of the host that were still there would lie over the pod's root, where ".." at / leads to them.
func TestNothingOfTheHostsRootIsLeft(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("host's"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(t)
	pod := s.newPod(t, "pivot", `/busybox awk '$5 == "/" {print "mount at /"}' /proc/self/mountinfo`+"\n/busybox cat /../.."+secret+" 2>/dev/null\nexit 0\n")
	if _, err := pod.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(pod.LogPath()); string(data) != "mount at /\n" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}

// The number of a process that has ended may be that of a stranger's process since, such as one of another pod.
func TestAStrangersRootIsNotOpened(t *testing.T) {
	s := newStore(t)
	pod := s.newPod(t, "root", "exec /busybox sleep 1000\n")
	stranger := exec.Command("sleep", "1000")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	_, err := pod.Run(ctx, false, func() error {
		defer stop()
		own, err := pod.OpenAppRoot(pod.State.Stager.PID)
		if err != nil {
			t.Errorf("a process of the pod: %v", err)
		} else {
			_ = own.Close()
		}
		if other, err := pod.OpenAppRoot(stranger.Process.Pid); !errors.Is(err, errGone) {
			t.Errorf("%v, want %v", err, errGone)
			_ = other.Close()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := stranger.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = stranger.Wait() // it was killed
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
}
