package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"kurma.io/stager/boot/rootfs"
	"kurma.io/stager/internal/rmtree"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// The steps that make the apps' volumes.

// makeVolumes makes the folders of the empty volumes, and finds devices among the host volumes.
func makeVolumes(_ context.Context, p *Pod) error {
	if err := rmtree.Remove(names.EmptyVolumesDir); err != nil { // of an earlier pod in this root
		return fmt.Errorf("clear empty volumes: %w", err)
	}
	p.devices = make(map[string][]spec.Device)
	for _, app := range p.Plan.Apps {
		devices, err := rootfs.CheckSources(app.Sources, os.Lstat)
		if err == nil {
			err = rootfs.MakeEmptyVolumes(app.Volumes)
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
		p.devices[app.Name] = devices
	}
	return nil
}

// prepareMounts fills the empty volumes from the images, and prepares the targets of the apps' mounts. The apps come
// one after the other, because the first image with a volume's target decides what the volume gets.
func (p *Pod) prepareMounts(ctx context.Context) error {
	filled := make(map[string]bool) // the volumes' paths
	for _, app := range p.Plan.Apps {
		root := rootOf(app.Name)
		mounts, err := rootfs.ResolveTargets(root, app.Spec.Mounts)
		if err == nil {
			mounts, err = p.fillVolumes(ctx, root, mounts, app.Volumes, filled)
		}
		if err == nil {
			err = rootfs.PrepareTargets(root, mounts, p.Log.With("app", app.Name))
		}
		if err != nil {
			return fmt.Errorf("app %q: %w", app.Name, err)
		}
	}
	return nil
}

// fillVolumes copies the files of the app's root at a volume's target into the volume, if it is an empty volume without
// files. It returns the other mounts, without prepared targets.
func (p *Pod) fillVolumes(
	ctx context.Context, root string, mounts []spec.Mount, volumes []plan.EmptyVolume, filled map[string]bool,
) ([]spec.Mount, error) {
	var rest []spec.Mount
	for _, m := range mounts {
		takes := slices.ContainsFunc(volumes, func(v plan.EmptyVolume) bool { return v.Path == m.Source && v.FromImage })
		if takes && !filled[m.Source] {
			found, err := p.fillVolume(ctx, root, m)
			if err != nil {
				return nil, fmt.Errorf("copy the image's files at %q into the volume: %w", m.Target, err)
			}
			if filled[m.Source] = found; found {
				continue
			}
		}
		rest = append(rest, m)
	}
	return rest, nil
}

// fillingAttribute is on a volume's folder while it is filled: one that a killed stager has left there with a part of
// the files is filled again.
const fillingAttribute = "trusted.stager.filling"

// fillVolume returns false if the root has no folder at the mount's target. A volume with files stays as it is: the
// daemon has given it to an earlier pod, too.
func (p *Pod) fillVolume(ctx context.Context, root string, m spec.Mount) (found bool, err error) {
	folder, err := rootfs.OpenFolder(root, m.Target)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer folder.Close()
	if _, err := unix.Getxattr(m.Source, fillingAttribute, nil); err == nil {
		if err := rmtree.Empty(m.Source); err != nil {
			return true, err
		}
	}
	if files, err := os.ReadDir(m.Source); err != nil || len(files) > 0 {
		return true, err
	}
	volume := m.Source
	if p.Plan.UserNamespace != nil { // in the root, files belong to its users
		mapped, err := withOwners(m.Source, p.Plan.UserNamespace)
		if err != nil {
			return true, err
		}
		defer mapped.Close()
		volume = fmt.Sprintf("/proc/self/fd/%d/.", mapped.Fd())
	}
	marked := unix.Setxattr(m.Source, fillingAttribute, nil, 0) == nil // not every file system has attributes
	if err = unionfs.CopyFolder(ctx, volume, folder); err != nil {
		err = errors.Join(err, rmtree.Empty(m.Source))
	}
	if marked { // a folder that kept the mark would be emptied once more, with what the app has written
		err = errors.Join(err, os.NewSyscallError("removexattr", unix.Removexattr(m.Source, fillingAttribute)))
	}
	return true, err
}
