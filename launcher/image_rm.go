package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// imageRmCommand is `image rm IMAGE…`.
func imageRmCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "rm IMAGE…",
		Short:             "remove images that no pod uses",
		Args:              wants(1, -1, "IMAGE…"),
		ValidArgsFunction: c.completeImages(math.MaxInt, false),
		RunE: func(_ *cobra.Command, args []string) error {
			store, catalog, err := c.catalog()
			if err != nil {
				return err
			}
			return c.removeImages(store, catalog, args)
		},
	}
}

func (c *cli) removeImages(store *images.Store, catalog *images.Catalog, refs []string) error {
	var errs []error
	for _, ref := range refs {
		id, err := catalog.FindID(ref)
		if err == nil {
			err = store.Remove(id, func() error { return c.checkUnused(ref, id) })
		}
		errs = append(errs, err)
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

// errInUse says that a live pod uses an image.
var errInUse = errors.New("in use")

// checkUnused returns errInUse if a live pod uses the image.
func (c *cli) checkUnused(ref, id string) error {
	inUse, err := c.imagesInUse()
	if err != nil {
		return err
	}
	if pod, used := inUse[id]; used {
		return fmt.Errorf("image %s: %w by pod %q", ref, errInUse, pod)
	}
	return nil
}

// imagesInUse maps the ID of each image in use to the name of a live pod that uses it.
func (c *cli) imagesInUse() (map[string]string, error) {
	store, err := c.pods()
	if err != nil {
		return nil, err
	}
	all, err := store.List()
	if err != nil {
		return nil, err
	}
	inUse := make(map[string]string)
	for _, pod := range all {
		if pod.State.Phase == pods.Exited {
			continue
		}
		inUse[pod.Plan.StagerImage] = pod.Plan.Name
		for _, layer := range pod.Plan.Layers {
			inUse[layer.ID] = pod.Plan.Name
		}
	}
	return inUse, nil
}
