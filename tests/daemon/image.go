// Package daemon is the common part of the fixtures that start a stager without the launcher: they
// play a Kurma daemon, for stagers that the launcher would start differently or not at all. A fixture
// starts from the tree of a stager image with any names and contents, so it can also test a fork's
// stager.
package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// Image is a stager image that a fixture starts stagers from.
type Image struct {
	Name   string   // from its manifest
	Root   string   // the folder of its files; no stager may write to it
	Exec   []string // what a daemon executes in the stager's root
	Env    []string // the stager's variables in addition to HOME
	LogDir string   // the folder of the apps' logs in the stager's root
}

// Unpack unpacks an ACI below dir, with the launcher.
func Unpack(launcher, aci, dir string) (Image, error) {
	store := filepath.Join(dir, "images")
	config := filepath.Join(dir, "config.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{"imagesDirectory": %q}`, store), 0o600); err != nil {
		return Image{}, err
	}
	out, err := exec.Command(launcher, "--config", config, "--state", dir, "image", "import", aci).CombinedOutput()
	if err != nil {
		return Image{}, fmt.Errorf("import %s: %w: %s", aci, err, out)
	}
	found, err := filepath.Glob(filepath.Join(store, "sha512-*"))
	if err != nil || len(found) != 1 {
		return Image{}, fmt.Errorf("import %s: the store has %q, %w", aci, found, err)
	}
	data, err := os.ReadFile(filepath.Join(found[0], "manifest"))
	if err != nil {
		return Image{}, err
	}
	image, err := decode(data)
	image.Root = filepath.Join(found[0], "rootfs")
	return image, err
}

// decode reads the fields that a daemon needs from a stager's manifest.
func decode(data []byte) (Image, error) {
	type nameAndValue struct{ Name, Value string }
	var manifest struct {
		Name        string
		Annotations []nameAndValue
		App         struct {
			Exec        []string
			Environment []nameAndValue
		}
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return Image{}, fmt.Errorf("read the stager's manifest: %w", err)
	}
	image := Image{Name: manifest.Name, Exec: manifest.App.Exec}
	for _, variable := range manifest.App.Environment {
		image.Env = append(image.Env, variable.Name+"="+variable.Value)
	}
	for _, a := range manifest.Annotations {
		if a.Name == names.LogDirAnnotation {
			image.LogDir = a.Value
		}
	}
	if len(image.Exec) == 0 || image.LogDir == "" {
		return Image{}, fmt.Errorf("the stager's manifest lacks exec or the annotation %s", names.LogDirAnnotation)
	}
	return image, nil
}

// MakeRoot makes a stager's root: the image's files, and the folders on which a daemon mounts, among
// them one for each layer. The files are hard links if possible: a stager does not write to its
// image's files.
func (i Image) MakeRoot(root string, layers ...string) error {
	if err := link(i.Root, root); err != nil {
		return fmt.Errorf("make stager root: %w", err)
	}
	dirs := []string{names.LayersDir, names.VolumesDir, "/dev", "/proc", "/sys", "/etc"}
	for _, id := range layers {
		dirs = append(dirs, filepath.Join(names.LayersDir, id))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return fmt.Errorf("make stager root: %w", err)
		}
	}
	return nil
}

// link copies a folder, with hard links if possible. A special file is an error.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch d.Type() {
		case fs.ModeDir:
			return makeDir(d, target)
		case fs.ModeSymlink:
			text, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(text, target)
		case 0:
			if err := os.Link(path, target); !errors.Is(err, unix.EXDEV) {
				return err
			}
			return copyFile(path, target)
		}
		return fmt.Errorf("%s is not a file, folder or symbolic link", path)
	})
}

func makeDir(d fs.DirEntry, target string) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	if err := os.Mkdir(target, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chmod(target, info.Mode())
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	return errors.Join(target.Chown(int(stat.Uid), int(stat.Gid)), target.Chmod(info.Mode()))
}
