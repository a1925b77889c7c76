package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// Kill kills every process in a cgroup and below, frozen ones too, and need not wait. Where the kernel does not kill
// them by itself (hasKill), Kill freezes the cgroup meanwhile, so that no process forks. A cgroup that does not exist
// is no error; a process that a security module protects is one. Kill leaves the cgroup thawed: in a frozen cgroup of
// version 1 no process ends.
func Kill(m cgroups.Manager) error {
	defer thaw(m)
	if hasKill(m) {
		err := os.WriteFile(filepath.Join(m.Path(""), "cgroup.kill"), []byte("1"), 0)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil // it is gone, or going
		}
		return err
	}
	freeze(m)
	_, err := signalAll(m, unix.Kill)
	return err
}

// freezer is how a hierarchy freezes a cgroup.
type freezer struct{ hierarchy, file, frozen, thawed, state, done string }

// freezers are those of version 1 and 2.
var freezers = []freezer{ //nolint:gochecknoglobals // a table that is only read
	{"freezer", "freezer.state", "FROZEN", "THAWED", "freezer.state", "FROZEN"},
	{"", "cgroup.freeze", "1", "0", "cgroup.events", "frozen 1"},
}

// freezeLimit limits how long freeze waits: a process in uninterruptible sleep does not freeze.
const freezeLimit = 100 * time.Millisecond

// freeze freezes a cgroup. Errors do not matter: then Kill may miss what is forked meanwhile.
func freeze(m cgroups.Manager) {
	for _, f := range freezers {
		top := m.Path(f.hierarchy)
		if top == "" || os.WriteFile(filepath.Join(top, f.file), []byte(f.frozen), 0) != nil {
			continue
		}
		for deadline := time.Now().Add(freezeLimit); time.Now().Before(deadline); time.Sleep(killInterval) {
			if state, err := os.ReadFile(filepath.Join(top, f.state)); err != nil || strings.Contains(string(state), f.done) {
				return
			}
		}
	}
}

// thaw thaws a cgroup and all below it. Errors do not matter: then there is none.
func thaw(m cgroups.Manager) {
	for _, f := range freezers {
		top := m.Path(f.hierarchy)
		if top == "" {
			continue
		}
		_ = filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				_ = os.WriteFile(filepath.Join(path, f.file), []byte(f.thawed), 0)
			}
			return nil
		})
	}
}
