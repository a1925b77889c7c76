package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"kurma.io/stager/cri/imageindex"
	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/launcher/sources"
)

// recoverTime is how long the recovery may take: kubelet waits for the socket, and a network's plugin may hang.
const recoverTime = 20 * time.Second

// recoverState removes what servers that were killed have left: sandboxes that were not finished, pods and mounts that
// no container has, and folders without a record. What cannot be removed is logged, and the next server tries again.
func (s *Server) recoverState(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	err := errors.Join(s.removeDamaged(ctx), s.removeUnfinished(ctx), s.removeStrayPods(ctx), s.removeStrayMounts(),
		s.records.RemoveStray())
	if err != nil {
		slog.Error("leftovers of an earlier server stay", "error", oneLine(err))
	}
	_, imageErr := s.images.Collect()
	_, cacheErr := sources.RemoveLeftovers(s.cacheDir())
	if err := errors.Join(imageErr, cacheErr, s.removeStrayImages(ctx)); err != nil {
		slog.Error("leftovers of pulls stay", "error", oneLine(err))
	}
}

// removeStrayImages removes images that a killed pull has not indexed, unused layers, and the index entries of missing
// images.
func (s *Server) removeStrayImages(ctx context.Context) error {
	var known []imageindex.Image
	var there map[string]bool // nil while an import runs
	_, err := s.images.Remove(ctx, func(all []*images.Image, importing bool) (chosen []*images.Image, err error) {
		if known, err = s.index.All(); err != nil || importing {
			return nil, err
		}
		there = make(map[string]bool)
		for _, image := range all {
			there[image.ID] = true
			listed := slices.ContainsFunc(known, func(i imageindex.Image) bool { return i.ID == image.ID })
			if image.Manifest != nil && image.Manifest.Name == pulledName && !listed && s.checkUnused(image.ID) == nil {
				chosen = append(chosen, image)
			}
		}
		return append(chosen, images.Unneeded(all, chosen)...), nil
	})
	errs := []error{err}
	for _, image := range known {
		if err == nil && there != nil && !there[image.ID] {
			errs = append(errs, s.index.Remove(image.ID))
		}
	}
	return errors.Join(errs...)
}

// removeDamaged removes sandboxes and containers whose records are damaged: no list has them, so nobody else will.
func (s *Server) removeDamaged(ctx context.Context) error {
	sandboxIDs, containerIDs, err := s.records.Damaged()
	errs := []error{err}
	for _, id := range containerIDs {
		errs = append(errs, s.removeContainer(ctx, id))
	}
	for _, id := range sandboxIDs {
		errs = append(errs, s.stopAndRemove(ctx, id))
	}
	return errors.Join(errs...)
}

func (s *Server) removeUnfinished(ctx context.Context) error {
	all, err := s.records.Sandboxes()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		if r.Phase == records.Making || r.Phase == records.Failed {
			errs = append(errs, s.undoSandbox(ctx, r))
		}
	}
	return errors.Join(errs...)
}

// removeStrayPods removes the pods that no container has, that are damaged, or that were starting.
func (s *Server) removeStrayPods(ctx context.Context) error {
	if err := s.pods.CollectRemains(); err != nil { // of a pod that no list has
		return err
	}
	containers, err := s.records.Containers()
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	for _, c := range containers {
		known[c.PodUUID] = true
	}
	all, err := s.pods.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, pod := range all {
		// One that is damaged may run although its container counts as ended. One that starts is waited for by nobody:
		// kubelet was told that it did not, and starts another.
		if !known[pod.Plan.UUID] || jsonfile.IsDamage(pod.Damage) || pod.State.Phase == pods.Starting {
			s.pods.Kill(pod.Plan.UUID)
			errs = append(errs, s.pods.Remove(ctx, pod, true))
		}
	}
	return errors.Join(errs...)
}

func (s *Server) removeStrayMounts() error {
	dir := s.composedDir("")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	for _, e := range entries {
		if _, err := s.records.Container(e.Name()); errors.Is(err, records.ErrNotFound) {
			errs = append(errs, sandboxes.Decompose(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(append(errs, err)...)
}
