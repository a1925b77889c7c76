package daemon

import (
	"context"
	"errors"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/launcher/sources"
	"kurma.io/stager/signing"
)

// Collected is what Collect has deleted, or would delete.
type Collected struct {
	Pods    []string `json:"pods"`    // UUIDs
	Imports int      `json:"imports"` // unfinished imports and removals of images and volumes
	Layers  int      `json:"layers"`  // of interrupted imports and removals, which no image needs
	// Networks had plugin containers, which were stopped because no pod uses them.
	Networks []string `json:"networks,omitempty"`
}

// Collect deletes ended and dead pods with their logs, and what interrupted imports have left, and stops the plugins
// of networks that no pod uses. It returns what it has deleted, also with an error.
func (d *Daemon) Collect(ctx context.Context) (Collected, error) {
	store := d.pods()
	done, podErr := store.Collect(ctx)
	idle, networkErr := d.PruneNetworks(ctx)
	layers, layerErr := d.freeLayers(ctx, false)
	imports, imageErr := d.imageStore().Collect()
	cached, cacheErr := sources.RemoveLeftovers(d.config.CacheDirectory)
	volumes, volumeErr := d.volumes().Collect()
	trustErr := signing.RemoveLeftovers(d.config.TrustDirectory)
	return Collected{append([]string{}, done...), imports + cached + volumes, layers, idle},
		errors.Join(podErr, networkErr, layerErr, imageErr, cacheErr, volumeErr, trustErr)
}

// WouldCollect returns what Collect would delete.
func (d *Daemon) WouldCollect(ctx context.Context) (Collected, error) {
	all, err := d.Pods()
	if err != nil {
		return Collected{}, err
	}
	imports, err := d.imageStore().Unfinished()
	if err != nil {
		return Collected{}, err
	}
	layers, err := d.freeLayers(ctx, true)
	if err != nil {
		return Collected{}, err
	}
	cached, err := sources.Leftovers(d.config.CacheDirectory, nil)
	if err != nil {
		return Collected{}, err
	}
	volumes, err := d.volumes().Leftovers()
	if err != nil {
		return Collected{}, err
	}
	ended, others := splitEnded(all)
	idle, err := d.containers().Idle(func(network string) bool { return anyUses(others, network) })
	return Collected{Pods: ended, Imports: imports + cached + volumes, Layers: layers, Networks: idle}, err
}

// splitEnded returns the UUIDs of the pods that Collect deletes, and the others, whose networks may be in use: Collect
// first disconnects the pods that it deletes.
func splitEnded(all []*pods.Pod) (ended []string, others []*pods.Pod) {
	ended = []string{}
	for _, pod := range all {
		if pod.Ended() && !pod.Kept() {
			ended = append(ended, pod.Plan.UUID)
		} else {
			others = append(others, pod)
		}
	}
	return ended, others
}
