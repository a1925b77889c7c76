package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/internal/userns"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// inNetworkOf runs do on a thread with mounts of its own, and in a network namespace that belongs to a user namespace of
// user 700000. made is the folder of both.
func inNetworkOf(t *testing.T, do func(made string) error) error {
	t.Helper()
	return userns.New(700000, 10, unix.CLONE_NEWNET, func(made string) error {
		network, err := os.Open(filepath.Join(made, "net"))
		if err != nil {
			return err
		}
		defer network.Close()
		return thread.New(func() error {
			err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
			if err := errors.Join(err, unix.Setns(int(network.Fd()), unix.CLONE_NEWNET)); err != nil {
				return err
			}
			return do(made)
		})
	})
}

// A pod's user namespace is that of its network, whose number must be the configuration's, or a new one.
func TestTheUserNamespaceOfTheNetworkIsTaken(t *testing.T) {
	for hostID, want := range map[uint32]string{700000: "", 5: "the pod's network is in a user namespace of user 700000, and stagerConfig.userNamespace has 5"} {
		users := &spec.UserNamespace{Path: filepath.Join(t.TempDir(), "user"), HostID: hostID, Size: 10}
		err := inNetworkOf(t, func(made string) error {
			if err := makeUserNamespace(t.Context(), &Pod{Plan: &plan.Pod{UserNamespace: users}}); err != nil {
				return err
			}
			kept, err1 := os.Stat(users.Path)
			its, err2 := os.Stat(filepath.Join(made, "user"))
			if err := errors.Join(err1, err2); err != nil || !os.SameFile(kept, its) {
				t.Errorf("another user namespace is kept, %v", err)
			}
			return nil
		})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
