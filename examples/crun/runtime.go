package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/container/machine"
	"kurma.io/stager/spec"
)

// runtime implements spec.Runtime with crun. Cgroups are made here and not by crun: a
// container's end must not start processes, and crun 1.8 refuses machines with cgroups of
// versions 1 and 2 at once.
type runtime struct {
	cgroup string      // the pod's
	pod    *cgroup.Pod // from Prepare on

	state   string // crun's folder for each container
	bundles string // a folder for each container's configuration, log and so on
	shm     string // the pod's /dev/shm
}

func newRuntime(cgroup string) *runtime { return &runtime{cgroup: cgroup} }

var (
	_ spec.Runtime     = (*runtime)(nil)
	_ spec.OOMReporter = (*container)(nil)
)

// Support implements spec.Runtime.
func (r *runtime) Support() spec.Support { return machine.Support() }

// Prepare implements spec.Runtime.
func (r *runtime) Prepare(dir string, limits spec.Resources) (err error) {
	r.state, r.bundles, r.shm = filepath.Join(dir, "crun"), filepath.Join(dir, "bundles"), filepath.Join(dir, "shm")
	for path, mode := range map[string]os.FileMode{r.state: 0o700, r.bundles: 0o700, r.shm: 0o777 | os.ModeSticky} {
		if err := os.Mkdir(path, 0o700); err != nil && (path != r.shm || !errors.Is(err, os.ErrExist)) {
			return fmt.Errorf("prepare crun: %w", err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("prepare crun: %w", err)
		}
	}
	r.pod, err = cgroup.NewPod(r.cgroup, limits)
	return err
}

// MakePod implements spec.Runtime.
func (r *runtime) MakePod() error { return r.pod.Make() }

// KillPod implements spec.Runtime.
func (r *runtime) KillPod() error { return cgroup.KillPod(r.cgroup) }

// Close implements spec.Runtime.
func (r *runtime) Close() error {
	if r.pod == nil {
		return nil // Prepare has failed, or was not called
	}
	return r.pod.Remove()
}

// Container implements spec.Runtime.
func (r *runtime) Container(s spec.Spec) (spec.Container, error) {
	m, err := manager.New(&cgroups.Cgroup{Path: s.Cgroup, Resources: &cgroups.Resources{SkipDevices: true}})
	if err != nil {
		return nil, fmt.Errorf("find container's cgroup: %w", err)
	}
	return &container{runtime: r, spec: s, cgroups: m, bundle: filepath.Join(r.bundles, s.Name)}, nil
}
