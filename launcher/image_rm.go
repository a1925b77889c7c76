package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"kurma.io/stager/launcher/images"

	"github.com/spf13/cobra"
)

// imageRmCommand is `image rm IMAGE…`.
func imageRmCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "rm IMAGE…",
		Short:             "remove images that no pod and no network uses",
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

// errInUse says that a live pod or a network uses an image.
var errInUse = errors.New("in use")

// checkUnused returns errInUse if a live pod or a network uses the image.
func (c *cli) checkUnused(ref, id string) error {
	inUse, err := c.imagesInUse()
	if err != nil {
		return err
	}
	if by, used := inUse[id]; used {
		return fmt.Errorf("image %s: %w by %s", ref, errInUse, by)
	}
	return nil
}

// imagesInUse maps the ID of each image in use to the live pod, or the network, that uses it, for messages.
func (c *cli) imagesInUse() (map[string]string, error) {
	store, err := c.pods()
	if err != nil {
		return nil, err
	}
	byPods, err := store.ImagesInUse()
	if err != nil {
		return nil, err
	}
	containers, err := c.containers()
	if err != nil {
		return nil, err
	}
	networks, err := containers.Images(usesNetwork(store))
	if err != nil {
		return nil, err
	}
	inUse := make(map[string]string)
	for id, network := range networks {
		inUse[id] = fmt.Sprintf("network %q", network)
	}
	for id, pod := range byPods {
		inUse[id] = fmt.Sprintf("pod %q", pod)
	}
	return inUse, nil
}
