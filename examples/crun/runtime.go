package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"kurma.io/stager/container/cgroup"
	"kurma.io/stager/container/machine"
	"kurma.io/stager/pid1/goinit"
	"kurma.io/stager/spec"
)

// runtime implements spec.Runtime with crun. Cgroups are made here and not by crun: a container's end must not start
// processes.
type runtime struct {
	cgroup string           // the pod's
	init   *goinit.Init     // whose namespaces the containers join
	pod    *cgroup.PodGroup // from Prepare on
	family *family          // the program's

	state   string // of crun, which makes it: a folder for each container
	bundles string // a folder for each container's configuration, log and so on; the first container makes it
	shm     string // the pod's /dev/shm
}

// Support implements spec.Runtime.
func (r *runtime) Support() spec.Support {
	support := machine.Support()
	support.UserNamespaces = false
	return support
}

// Prepare implements spec.Runtime.
func (r *runtime) Prepare(dir string, limits spec.Resources) (err error) {
	r.state, r.bundles, r.shm = filepath.Join(dir, "crun"), filepath.Join(dir, "bundles"), filepath.Join(dir, "shm")
	if err := os.Mkdir(r.shm, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("prepare crun: %w", err)
	}
	if err := os.Chmod(r.shm, 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("prepare crun: %w", err)
	}
	if err := r.family.adopt(r.init); err != nil {
		return err
	}
	r.pod, err = cgroup.NewPodGroup(r.cgroup, limits)
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
	m, err := r.pod.Manager(s.Cgroup)
	return &container{runtime: r, spec: s, cgroups: m, bundle: filepath.Join(r.bundles, s.Name)}, err
}
