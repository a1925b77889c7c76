package daemon

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"kurma.io/stager/launcher/events"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/signing"
)

// pods opens the store of pods.
func (d *Daemon) pods() *pods.Store { return d.podsBelow("") }

// Pods returns all pods, the oldest first, and damaged pods at the end.
func (d *Daemon) Pods() ([]*pods.Pod, error) {
	return d.pods().List()
}

// FindPod returns the pod that a person means, see pods.Store.Find.
func (d *Daemon) FindPod(ref string) (*pods.Pod, error) {
	return d.pods().Find(ref)
}

// FindPods returns the pods that refs name, each once, and the errors of pods that cannot be found. Without
// refs it returns all pods that are alive, and the errors of the damaged ones that may be.
func (d *Daemon) FindPods(refs []string) (found []*pods.Pod, errs []error, err error) {
	store := d.pods()
	if len(refs) == 0 {
		return findLive(store)
	}
	seen := make(map[string]bool)
	for _, ref := range refs {
		pod, err := store.Find(ref)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !seen[pod.Plan.UUID] {
			found = append(found, pod)
		}
		seen[pod.Plan.UUID] = true
	}
	return found, errs, nil
}

func findLive(store *pods.Store) (found []*pods.Pod, errs []error, err error) {
	all, err := store.List()
	for _, pod := range all {
		if !pod.Ended() {
			found = append(found, pod)
		}
		if pod.Damage != nil && pod.Locked() {
			_, err := store.Find(pod.Plan.UUID)
			errs = append(errs, err)
		}
	}
	return found, errs, err
}

// NoLimit is StopPod's limit for a pod that it does not kill.
const NoLimit time.Duration = -1

// StopPod stops a pod and returns when the pod has ended, see pods.Store.Stop. It kills a pod that has not ended
// after limit. The end of ctx ends the wait, and not the stop; a ctx that has ended before stops nothing.
func (d *Daemon) StopPod(ctx context.Context, pod *pods.Pod, limit time.Duration) error {
	store := d.pods()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if limit != NoLimit {
		late := time.AfterFunc(limit, func() {
			if err := store.Kill(pod.Plan.UUID); err != nil {
				giveUp(err)
			}
		})
		defer late.Stop()
	}
	return store.Stop(ctx, pod)
}

// RemovePod deletes a pod that has ended, see pods.Store.Remove.
func (d *Daemon) RemovePod(ctx context.Context, pod *pods.Pod, force bool) error {
	return d.pods().Remove(ctx, pod, force)
}

// RemovePods deletes the pods that have ended, and with force all pods, as RemovePod does. One that cannot be deleted
// prevents no other.
func (d *Daemon) RemovePods(ctx context.Context, force bool) error {
	all, err := d.Pods()
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range all {
		if force || pod.Ended() && pod.Damage == nil {
			errs = append(errs, d.RemovePod(ctx, pod, force))
		}
	}
	return errors.Join(errs...)
}

// Outcome is how a pod has ended.
type Outcome struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Code   *int   `json:"code,omitempty"`   // see pods.Pod.Outcome; nil if it is not known
	Reason string `json:"reason,omitempty"` // "oom-killed" if that has ended an app
}

// Wait waits until the pod has ended. The outcome of a pod that is deleted by then, or is just being deleted, is that
// of its last event; if that has none the error is pods.ErrNotFound.
func (d *Daemon) Wait(ctx context.Context, pod *pods.Pod) (Outcome, error) {
	outcome, err := awaitOutcome(ctx, pod)
	if !errors.Is(err, pods.ErrNotFound) {
		return outcome, err
	}
	failed := d.Events(ctx, EventOptions{}, func(e events.Event) error {
		if e.UUID == pod.Plan.UUID && e.App == "" && e.Action == events.Exited && e.Code != nil {
			outcome, err = Outcome{UUID: e.UUID, Name: e.Pod, Code: e.Code}, nil
			if e.Reason == pods.OOMKilled {
				outcome.Reason = e.Reason
			}
		}
		return nil
	})
	return outcome, errors.Join(err, failed)
}

func awaitOutcome(ctx context.Context, pod *pods.Pod) (Outcome, error) {
	if err := pod.AwaitEnd(ctx); err != nil {
		return Outcome{}, err
	}
	code, reason := pod.Outcome()
	if code == nil {
		if err := pod.Refresh(); err != nil {
			return Outcome{}, err
		}
		if pod.Locked() {
			return Outcome{}, fmt.Errorf("%w any more: %q", pods.ErrNotFound, pod.Plan.Name)
		}
	}
	return Outcome{pod.Plan.UUID, pod.Plan.Name, code, reason}, nil
}

// Restart stops a pod, unless it has ended, and starts another one with the same plan, detached. The new pod takes
// the empty volumes, the apps' logs and the place of the old one, which is deleted once the new one is up. If the new
// pod cannot be made, the old one runs on; if it does not start, the old one has its volumes back. Its images cannot be
// removed meanwhile, and its stager must still be trusted. A pod that has ended, but could not be disconnected from its
// networks, or whose logs the new pod could not take, is also started again, and stays; its error, as one of its
// deletion, is returned beside the new pod. If ctx
// ends while the old pod is stopped, the old pod stays with its volumes and logs, and no pod is started.
// A pod of a service is an error that names the service: the service manager would take its end for the service's.
func (d *Daemon) Restart(ctx context.Context, old *pods.Pod) (*pods.Pod, error) {
	if unit := serviceOf(old.Plan); unit != "" {
		return nil, fmt.Errorf("it belongs to the service %[1]s: use systemctl restart %[1]s", unit)
	}
	imageStore, ring, err := d.imagesAndKeys()
	if err != nil {
		return nil, err
	}
	release, err := imageStore.Pin()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := checkImages(imageStore, ring, old.Plan); err != nil {
		return nil, err
	}
	store := d.podsBelow(old.Plan.CgroupParent)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	letGo, err := old.Hold()
	if err != nil {
		return nil, err
	}
	pod, err := d.stopAndStart(ctx, store, old)
	letGo()
	if pod == nil || err != nil {
		return pod, err
	}
	return pod, store.Remove(context.WithoutCancel(ctx), old, false)
}

// serviceOf returns the unit whose launcher runs a pod in the service's cgroup, "" for none.
func serviceOf(plan pods.Plan) string {
	unit := path.Base(path.Dir(plan.Cgroup))
	if plan.CgroupParent != "" || !strings.HasSuffix(unit, ".service") {
		return ""
	}
	return unit
}

// stopAndStart writes all that the new pod needs before it stops the old one: on a full disk the old pod runs on.
func (d *Daemon) stopAndStart(ctx context.Context, store *pods.Store, old *pods.Pod) (*pods.Pod, error) {
	next, err := store.Create(ctx, old.Plan.Again())
	if err != nil {
		return nil, err
	}
	monitor, err := next.Prepare(d.programs.Monitor)
	if err != nil {
		return nil, err
	}
	defer monitor.Close()
	// The stop cannot be taken back, and a pod that is not held until its end may be deleted with its volumes.
	stopped := store.Stop(context.WithoutCancel(ctx), old)
	if stopped != nil && !errors.Is(stopped, pods.ErrConnected) {
		return nil, errors.Join(stopped, next.Discard())
	}
	if err = context.Cause(ctx); err == nil {
		err = store.CheckFree(next)
	}
	if err != nil {
		return nil, errors.Join(stopped, err, next.Discard())
	}
	if err := store.MoveVolumes(old, next); err != nil {
		return nil, errors.Join(stopped, err)
	}
	kept := next.TakeLogs(old)
	if err := monitor.HandOver(ctx, next); err != nil {
		return nil, errors.Join(stopped, err)
	}
	return &next.Pod, errors.Join(stopped, kept)
}

// checkImages returns an error unless a plan's stager is trusted and all of its layers are in the store.
func checkImages(store *images.Store, ring signing.KeyRing, plan pods.Plan) error {
	stager, err := store.Get(plan.StagerImage)
	if err == nil {
		err = store.TrustStager(stager, ring)
	}
	for _, layer := range plan.Layers {
		if err == nil {
			_, err = store.Get(layer.ID)
		}
	}
	return err
}
