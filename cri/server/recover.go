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

// leftovers are what killed servers have left and what may take long to remove.
type leftovers struct {
	unfinished []records.Sandbox // sandboxes
	pods       []*pods.Pod       // that no container has
	mounts     []string          // folders of composed mounts that no container needs
}

// recoverTime is how long the removal of a leftover may take, and that of all while kubelet waits for the socket: the
// plugin of a network may hang.
const recoverTime = 20 * time.Second

// findLeftovers finds leftovers and ends their processes. It removes what is damaged, what was starting, and folders
// without a record: kubelet does not see that these run, and would start others beside them. The server must not serve
// meanwhile: what a call is making looks like a leftover. All that is found may be removed while the server serves.
func (s *Server) findLeftovers(ctx context.Context) leftovers {
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	var l leftovers
	var errs [4]error
	damaged := s.removeDamaged(ctx)
	errs[3] = s.recordFailedStarts()
	l.unfinished, errs[0] = s.findUnfinished()
	l.mounts, errs[1] = s.findStrayMounts()
	l.pods, errs[2] = s.endStrayPods(ctx)
	logLeft(errors.Join(append(errs[:], damaged, s.records.RemoveStray())...))
	return l
}

// serverKilled is why a container did not start whose server was killed before it could record a reason.
const serverKilled = "the server was killed while the container was starting"

// recordFailedStarts records of containers that the earlier server was starting that they have not started.
func (s *Server) recordFailedStarts() error {
	containers, err := s.records.Containers()
	for _, r := range containers {
		if r.PodUUID == "" || !r.Started.IsZero() || r.StartError != "" {
			continue
		}
		r.StartError, r.Failed = serverKilled, time.Now()
		err = errors.Join(err, s.records.WriteContainer(r))
	}
	return err
}

// endStrayPods kills and removes the pods of findStrayPods that have not ended or are damaged, and returns the others.
func (s *Server) endStrayPods(ctx context.Context) (ended []*pods.Pod, err error) {
	strays, err := s.findStrayPods()
	for _, pod := range strays {
		if pod.Ended() && pod.Damage == nil {
			ended = append(ended, pod)
			continue
		}
		err = errors.Join(err, s.pods.Kill(pod.Plan.UUID), s.pods.Remove(ctx, pod, true))
	}
	return ended, err
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

// logLeft logs that leftovers stay: the next server tries again.
func logLeft(err error) {
	if err != nil {
		slog.Error("leftovers of an earlier server stay", "error", oneLine(err))
	}
}

// removeLeftovers removes leftovers one after the other.
func (s *Server) removeLeftovers(ctx context.Context, l leftovers) {
	remove := func(one func(ctx context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, recoverTime)
		defer cancel()
		logLeft(ignoreMissing(one(ctx)))
	}
	for _, r := range l.unfinished {
		remove(func(ctx context.Context) error { return s.undoSandbox(ctx, r) })
	}
	for _, pod := range l.pods {
		remove(func(ctx context.Context) error { return s.pods.Remove(ctx, pod, true) })
	}
	for _, dir := range l.mounts {
		remove(func(context.Context) error { return sandboxes.Decompose(dir) })
	}
	logLeft(s.pods.CollectRemains()) // of pods that no list has
}

// importEnds is how often removePulled looks whether imports have ended.
const importEnds = time.Second

// removePulled removes the leftovers of pulls, while no image is imported. It waits for that until ctx ends.
func (s *Server) removePulled(ctx context.Context) {
	_, imageErr := s.images.Collect()
	_, cacheErr := sources.RemoveLeftovers(s.cacheDir())
	importing, err := s.removeStrayImages(ctx)
	for err == nil && importing && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(importEnds):
			importing, err = s.removeStrayImages(ctx)
		}
	}
	if err := errors.Join(imageErr, cacheErr, err); err != nil && ctx.Err() == nil {
		slog.Error("leftovers of pulls stay", "error", oneLine(err))
	}
}

// removeStrayImages removes images that a killed pull has not indexed, unused layers, and the index entries of missing
// images. It removes nothing while an import runs: the index may not have its image yet.
func (s *Server) removeStrayImages(ctx context.Context) (importing bool, err error) {
	_, err = s.images.Remove(ctx, func(all []*images.Image, imports images.Imports) (chosen []*images.Image, err error) {
		if importing = imports.Running; importing {
			return nil, nil
		}
		known, err := s.index.All()
		if err != nil {
			return nil, err
		}
		for _, image := range all {
			listed := slices.ContainsFunc(known, func(i imageindex.Image) bool { return i.ID == image.ID })
			if image.Manifest != nil && image.Manifest.Name == pulledName && !listed && s.checkUnused(image.ID) == nil {
				chosen = append(chosen, image)
			}
		}
		for _, image := range known {
			if !slices.ContainsFunc(all, func(i *images.Image) bool { return i.ID == image.ID }) {
				err = errors.Join(err, s.index.Remove(image.ID))
			}
		}
		return append(chosen, unneeded(all, chosen, imports)...), err
	})
	return importing, err
}

func (s *Server) findUnfinished() ([]records.Sandbox, error) {
	all, err := s.records.Sandboxes()
	return slices.DeleteFunc(all, func(r records.Sandbox) bool {
		return r.Phase != records.Making && r.Phase != records.Failed
	}), err
}

func (s *Server) findStrayPods() ([]*pods.Pod, error) {
	containers, err := s.records.Containers()
	if err != nil {
		return nil, err
	}
	started := make(map[string]bool) // of the pods that have a container
	for _, c := range containers {
		started[c.PodUUID] = !c.Started.IsZero()
	}
	all, err := s.pods.List()
	// A pod that is damaged may run although its container counts as ended. A pod whose start the server did not finish
	// may lack its limits, and kubelet was told that it did not start.
	return slices.DeleteFunc(all, func(pod *pods.Pod) bool {
		finished, known := started[pod.Plan.UUID]
		return known && !jsonfile.IsDamage(pod.Damage) && (finished || pod.Ended())
	}), err
}

// findStrayMounts returns the composed mounts that no container needs for its start.
func (s *Server) findStrayMounts() (dirs []string, err error) {
	dir := s.composedDir("")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		c, err := s.records.Container(e.Name())
		if errors.Is(err, records.ErrNotFound) || err == nil && c.StartTried() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs, err
}
