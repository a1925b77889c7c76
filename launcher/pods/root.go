package pods

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"kurma.io/stager/build"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/networks"
)

// Files and folders of a stager's root that the launcher makes.
const (
	manifestName = "manifest"
	layersName   = "layers"
	volumesName  = "volumes"
)

// resolvConf is the host's resolv.conf in the stager's root, or that of the pod's networks.
const resolvConf = "etc/resolv.conf"

// journalDir is where in its root the stager looks for journald's sockets.
const journalDir = "run/systemd/journal"

// makeFiles makes the stager's root, unless it is made, and the empty volumes.
func (k *Keeper) makeFiles() error {
	if !k.rooted {
		if err := k.makeRoot(); err != nil {
			return err
		}
	}
	return k.makeEmptyVolumes()
}

// makeRoot makes the part of the stager's root that is on disk: a writable copy of the
// image without its program, the manifest, resolv.conf and hosts, and the mount points.
// Paths are resolved inside the root only.
func (k *Keeper) makeRoot() error {
	path := filepath.Join(k.Dir, rootDir)
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("make stager root: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return fmt.Errorf("make stager root: %w", err)
	}
	defer root.Close()
	if err := k.copyImage(root); err != nil {
		return fmt.Errorf("copy stager image: %w", err)
	}
	if err := k.fillRoot(root); err != nil {
		return fmt.Errorf("fill stager root: %w", err)
	}
	k.rooted = true
	return nil
}

// makeCgroup makes the pod's cgroup, with the limits around it.
func (k *Keeper) makeCgroup(group *cgroups.Group) error {
	if err := group.Make(); err != nil || k.Plan.ChangingLimits {
		return err
	}
	return group.LimitAsAround()
}

func (k *Keeper) fillRoot(root *os.Root) error {
	folders := []string{"dev", "proc", "sys", "etc", layersName, volumesName}
	for _, layer := range k.Plan.Layers {
		folders = append(folders, filepath.Join(layersName, layer.ID))
	}
	if k.Plan.Journal != "" {
		folders = append(folders, "run", "run/systemd", journalDir)
	}
	for _, name := range folders {
		if err := makeDir(root, name); err != nil {
			return err
		}
	}
	for _, volume := range k.Plan.Volumes {
		if err := k.makeVolumePoint(root, volume); err != nil {
			return err
		}
	}
	if err := k.makeLogs(root); err != nil {
		return err
	}
	if err := writeNew(root, manifestName, k.Plan.Manifest); err != nil {
		return err
	}
	return writeNames(root, namesFile(k.Plan.HostNetwork, "/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"))
}

// makeDir makes a folder, or accepts one that the image has. Anything else of that name
// in the image is an error, because mounts would not be where they should.
func makeDir(root *os.Root, name string) error {
	err := root.Mkdir(name, 0o755)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("the stager image has a /%s that is not a folder", name)
	}
	return err
}

// writeNew writes a file and replaces what the image has under that name.
func writeNew(root *os.Root, name string, data []byte) error {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o644)
}

// namesFile returns the host's resolv.conf that serves the pod. A server at a loopback address, as systemd-resolved is,
// is not to be reached from a network of the pod's own: systemd-resolved lists those that it asks itself in another
// file (systemd-resolved.service(8)).
func namesFile(hostNetwork bool, hosts, resolved string) string {
	onlyLoopback := func(path string) bool {
		text, err := os.ReadFile(path)
		return err != nil || networks.OnlyLoopback(string(text))
	}
	if hostNetwork || !onlyLoopback(hosts) || onlyLoopback(resolved) {
		return hosts
	}
	return resolved
}

// writeNames gives the stager the host's resolv.conf, unless the host has none, and its own hosts file. The stager
// makes those of its apps from them, which keep their images' resolv.conf if the stager has none.
func writeNames(root *os.Root, hosts string) error {
	resolver, err := os.ReadFile(hosts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = root.RemoveAll(resolvConf)
	case err == nil:
		err = writeNew(root, resolvConf, resolver)
	}
	if err != nil {
		return err
	}
	return writeNew(root, "etc/hosts", []byte("127.0.0.1\tlocalhost\n::1\tlocalhost\n"))
}

// makeVolumePoint makes the mount point of a volume: a file if the source is a file, else a folder.
func (k *Keeper) makeVolumePoint(root *os.Root, volume Volume) error {
	name := filepath.Join(volumesName, volume.Name)
	if volume.isEmpty() {
		return makeDir(root, name)
	}
	if volume.Hosts {
		return writeNew(root, name, nil)
	}
	source, err := openSource(volume.Source)
	if err != nil {
		return fmt.Errorf("volume %q: %w", volume.Name, err)
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return fmt.Errorf("volume %q: %w", volume.Name, err)
	}
	if info.IsDir() {
		return makeDir(root, name)
	}
	return writeNew(root, name, nil)
}

// sharesProgram reports whether all pods of the stager's image execute the image's own file, which is mounted in each
// root, instead of a copy: the file's memory is then needed once, however many pods run, and nobody who finds the file
// in /proc can write to it. A stager that is started by a link or by one of several names of its file has a copy.
func (k *Keeper) sharesProgram() (bool, error) {
	dir, err := filepath.EvalSymlinks(k.Plan.StagerRoot)
	if err != nil {
		return false, err
	}
	name := filepath.Join(dir, filepath.Clean(k.Plan.Exec[0]))
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return false, nil // an image without the program fails in execve(2)
	}
	real, err := filepath.EvalSymlinks(name)
	return real == name, err
}

// copyImage copies an image's files, which are few and small. Where the program will be mounted, the copy is empty.
func (k *Keeper) copyImage(root *os.Root) error {
	shared, err := k.sharesProgram()
	if err != nil {
		return err
	}
	entries, err := build.Tree(k.Plan.StagerRoot, true)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if shared && "/"+e.Name == filepath.Clean(k.Plan.Exec[0]) {
			e.Source = os.DevNull
		}
		if err := copyEntry(root, e); err != nil {
			return fmt.Errorf("/%s: %w", e.Name, err)
		}
	}
	return nil
}

// mountProgram mounts the stager's program where makeRoot has left an empty file for it.
func (k *Keeper) mountProgram(path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	program := filepath.Clean(k.Plan.Exec[0])
	info, err := root.Lstat(program[1:])
	if err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
		return nil // a copy, or a program that is missing, which execve(2) will say
	}
	return bind(filepath.Join(k.Plan.StagerRoot, program), filepath.Join(path, program), bindOptions{readOnly: true})
}

func copyEntry(root *os.Root, e build.Entry) error {
	if e.Name == "" {
		return errors.Join(root.Lchown(".", e.UID, e.GID), root.Chmod(".", e.Mode))
	}
	var err error
	switch e.Type {
	case tar.TypeDir:
		err = root.Mkdir(e.Name, 0o700)
	case tar.TypeReg:
		err = copyContent(root, e)
	case tar.TypeSymlink:
		return errors.Join(root.Symlink(e.Link, e.Name), root.Lchown(e.Name, e.UID, e.GID))
	case tar.TypeLink:
		return root.Link(e.Link, e.Name)
	default:
		return errors.New("a device or FIFO: a stager image cannot have one, its /dev is the host's")
	}
	if err != nil {
		return err
	}
	return errors.Join(root.Lchown(e.Name, e.UID, e.GID), root.Chmod(e.Name, e.Mode))
}

func copyContent(root *os.Root, e build.Entry) error {
	in, err := os.Open(e.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(e.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
