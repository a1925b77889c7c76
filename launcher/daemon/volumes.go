package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"

	"kurma.io/stager/launcher/copies"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/launcher/volumes"
)

// Volume is a named volume.
type Volume struct {
	volumes.Volume
	Pods []string `json:"pods"` // the names of the pods that have it, also of pods that have ended
}

func (d *Daemon) volumes() *volumes.Store { return volumes.Open(d.config.VolumesDirectory) }

// Volumes returns the named volumes in the order of their names.
func (d *Daemon) Volumes() ([]Volume, error) {
	found, err := d.volumes().List()
	if err != nil {
		return nil, err
	}
	users, err := d.volumeUsers()
	if err != nil {
		return nil, err
	}
	var all []Volume
	for _, v := range found {
		all = append(all, Volume{v, append([]string{}, users.pods[v.Name]...)})
	}
	return all, nil
}

// FindVolume returns the volume of that name. A volume that the store does not have is volumes.ErrNotFound.
func (d *Daemon) FindVolume(name string) (Volume, error) {
	found, err := d.volumes().Get(name)
	if err != nil {
		return Volume{}, err
	}
	users, err := d.volumeUsers()
	return Volume{found, append([]string{}, users.pods[name]...)}, err
}

// volumeUsers are the pods that have named volumes: live pods, and pods that have ended, which a restart starts again.
type volumeUsers struct {
	pods    map[string][]string // the pods' names by the volumes'
	unknown string              // a damaged pod, of which nobody knows the volumes; "" for none
}

func (d *Daemon) volumeUsers() (volumeUsers, error) {
	all, err := d.Pods()
	if err != nil {
		return volumeUsers{}, err
	}
	store := d.volumes()
	users := volumeUsers{pods: make(map[string][]string)}
	for _, pod := range all {
		if pod.Damage != nil && pod.Plan.Manifest == nil {
			users.unknown = pod.Plan.UUID
		}
		for _, v := range pod.Plan.Volumes {
			if name, named := store.NameOf(v.Source); named {
				users.pods[name] = append(users.pods[name], pod.Plan.Name)
			}
		}
	}
	return users, nil
}

// RemoveVolume removes a named volume with its files. The volume of a pod, also of one that has ended, is an error that
// names the pod.
func (d *Daemon) RemoveVolume(ctx context.Context, name string) error {
	return d.volumes().Remove(ctx, name, func() error {
		users, err := d.volumeUsers()
		switch {
		case err != nil:
			return err
		case len(users.pods[name]) > 0:
			return fmt.Errorf("%w by pod %q", ErrVolumeInUse, users.pods[name][0])
		case users.unknown != "":
			return fmt.Errorf("the damaged pod %s may have it; launcher rm --force %[1]s deletes the pod", users.unknown)
		}
		return nil
	})
}

// ErrVolumeInUse says that a pod has the volume.
var ErrVolumeInUse = errors.New("in use")

// PruneVolumes removes the named ones of the volumes that no pod has, and returns their names, also with an error.
func (d *Daemon) PruneVolumes(ctx context.Context, names []string) ([]string, error) {
	var removed []string
	for _, name := range names {
		switch err := d.RemoveVolume(ctx, name); {
		case err == nil:
			removed = append(removed, name)
		case !errors.Is(err, ErrVolumeInUse) && !errors.Is(err, volumes.ErrNotFound):
			return removed, err
		}
	}
	return removed, nil
}

// ExportVolume writes the files of a volume as a tar archive, and calls warn for each file that is left out. Pods may
// change the files meanwhile.
func (d *Daemon) ExportVolume(ctx context.Context, name string, to io.Writer, warn func(string)) error {
	volume, err := d.volumes().Get(name)
	if err != nil {
		return err
	}
	source, err := copies.Host().Source(volume.Path + "/.")
	if err != nil {
		return fmt.Errorf("export volume %q: %w", name, err)
	}
	defer func() { _ = source.Close() }()
	if err := source.Pack(ctx, to, "", warn); err != nil {
		return fmt.Errorf("export volume %q: %w", name, err)
	}
	return nil
}

// ImportVolume makes a new volume of the files of a tar archive, with their owners and modes, and calls warn for each
// file that is left out. A volume that exists is volumes.ErrExists. After an error, also by the end of ctx, there is no
// volume.
func (d *Daemon) ImportVolume(ctx context.Context, name string, from io.Reader, warn func(string)) error {
	if !podplan.IsName(name) {
		return fmt.Errorf("volume %q: %w", name, podplan.ErrName)
	}
	return d.volumes().Create(ctx, name, func(data string) error {
		target, err := copies.NewFolder(data)
		if err != nil {
			return err
		}
		defer func() { _ = target.Close() }()
		read, write := io.Pipe() // a reader that ends with ctx
		defer context.AfterFunc(ctx, func() { _ = read.CloseWithError(context.Cause(ctx)) })()
		go func() {
			_, err := io.Copy(write, from)
			_ = write.CloseWithError(err)
		}()
		err = target.Unpack(read, true, warn)
		_ = read.Close()
		return err
	})
}

// makeVolumes makes the named volumes of a planned pod that do not exist. A new volume is a copy of the folder at its
// target of the first app whose image has one.
func (d *Daemon) makeVolumes(ctx context.Context, plan pods.Plan) error {
	store := d.volumes()
	for _, v := range plan.Volumes {
		name, named := store.NameOf(v.Source)
		if !named {
			continue
		}
		err := store.Make(ctx, name, func(data string) error { return d.fillVolume(ctx, plan, v.Name, data) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Daemon) fillVolume(ctx context.Context, plan pods.Plan, volume, data string) error {
	targets, err := podplan.Targets(plan)
	if err != nil {
		return err
	}
	for _, target := range targets[volume] {
		var layers []*images.Image
		for _, id := range target.Layers {
			image, err := d.imageStore().Get(id)
			if err != nil {
				return err
			}
			layers = append(layers, image)
		}
		found, err := images.CopyFolder(ctx, layers, target.Path, data)
		if found || err != nil {
			return err
		}
	}
	return nil
}
