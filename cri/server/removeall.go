package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// RemoveAll stops and removes all containers and sandboxes, without a grace period, for a node that leaves its cluster.
// The plugins of Kurma's networks are stopped, too. Images stay. A server that serves is an error.
func RemoveAll(ctx context.Context, config Config, version string) error {
	if _, err := os.Stat(config.State); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	listener, err := listen(config.Socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	s, err := open(ctx, config, version)
	if err != nil {
		return err
	}
	s.attendAll()
	limited, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	s.removeLeftovers(limited, s.findLeftovers(limited))
	s.removePulled(limited)
	all, err := s.records.Sandboxes()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		if err := ignoreMissing(s.stopAndRemove(ctx, r.ID)); err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", r.ID, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	_, err = s.daemon.PruneNetworks(ctx) // no pod uses one, as sandboxes are no pods
	return err
}

// stopAndRemove ends and removes a sandbox with its containers.
func (s *Server) stopAndRemove(ctx context.Context, id string) error {
	if err := s.stopSandbox(ctx, id); err != nil {
		return err
	}
	containers, err := s.containersOf(id)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if err := ignoreMissing(s.removeContainer(ctx, c.ID)); err != nil {
			return err
		}
	}
	return s.removeSandbox(ctx, id)
}
