package build

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/sparse"
)

// Extract extracts an image file into the folder dir, which it makes: dir/manifest and dir/rootfs,
// as Tree and Write read them. Files have their modes, times and extended attributes, and for
// root their owners; others own what they extract. If it fails, it leaves what it has extracted so far.
//
// No file outside of dir is written, wherever the image's symbolic links lead.
//
// The launcher's store has its own extractor, which shares Archive with this one: it runs as root on images of
// strangers, so it limits entries, names and space. It keeps every extended attribute and access time, because an ID
// must give the same files on every machine. Extract is for the builder of an image, also without root, and os.Root
// is enough.
func Extract(file io.Reader, dir string) (Image, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return Image{}, err
	}
	if err := os.Mkdir(path.Join(dir, "rootfs"), 0o755); err != nil {
		return Image{}, err
	}
	root, err := os.OpenRoot(path.Join(dir, "rootfs"))
	if err != nil {
		return Image{}, err
	}
	defer root.Close()
	x := extraction{root: root, owners: os.Geteuid() == 0, folders: make(map[string]*tar.Header)}
	image, err := Read(file, x.extract)
	if err == nil {
		err = x.finishFolders()
	}
	if err != nil {
		return Image{}, err
	}
	return image, os.WriteFile(path.Join(dir, "manifest"), image.Manifest, 0o644)
}

type extraction struct {
	root   *os.Root
	owners bool
	// folders get their modes and times at the end: a file in a folder changes its time, and needs its permission.
	folders map[string]*tar.Header
}

func (x *extraction) extract(name string, h *tar.Header, content io.Reader) error {
	if name == "" {
		name = "."
	}
	if err := x.place(name, h); err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	if err := x.make(name, h, content); err != nil {
		return fmt.Errorf("/%s: %w", name, err)
	}
	return nil
}

// place makes the folders that lead to an entry, and removes an earlier file of its name.
func (x *extraction) place(name string, h *tar.Header) error {
	if err := x.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	info, err := x.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() && h.Typeflag == tar.TypeDir {
		return nil
	}
	if err != nil {
		return err
	}
	maps.DeleteFunc(x.folders, func(f string, _ *tar.Header) bool { return strings.HasPrefix(f+"/", name+"/") })
	return x.root.RemoveAll(name)
}

func (x *extraction) make(name string, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		x.folders[name] = h
		if name == "." {
			return nil
		}
		return x.root.MkdirAll(name, 0o755)
	case tar.TypeReg, tar.TypeGNUSparse:
		if err := x.regular(name, content); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := x.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
	case tar.TypeLink:
		return x.root.Link(h.Linkname, name)
	case tar.TypeFifo, tar.TypeChar, tar.TypeBlock:
		if err := x.node(name, h); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown type %q", h.Typeflag)
	}
	return x.finish(name, h)
}

func (x *extraction) regular(name string, content io.Reader) error {
	file, err := x.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(sparse.Write(file, content, nil), file.Close())
}

// node makes a pipe or a device.
func (x *extraction) node(name string, h *tar.Header) error {
	parent, err := x.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	kinds := map[byte]uint32{tar.TypeFifo: unix.S_IFIFO, tar.TypeChar: unix.S_IFCHR, tar.TypeBlock: unix.S_IFBLK}
	device := unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))
	err = unix.Mknodat(int(parent.Fd()), path.Base(name), kinds[h.Typeflag]|0o600, int(device))
	return os.NewSyscallError("mknod", err)
}

// finish gives a file its owner, attributes, mode and time, in this order: a new owner clears the
// capabilities and the setuid bit.
func (x *extraction) finish(name string, h *tar.Header) error {
	if x.owners {
		if err := x.root.Lchown(name, h.Uid, h.Gid); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeSymlink {
		return nil
	}
	if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir {
		if err := x.attributes(name, h); err != nil {
			return err
		}
	}
	if err := x.root.Chmod(name, h.FileInfo().Mode()); err != nil {
		return err
	}
	return x.root.Chtimes(name, h.ModTime, h.ModTime)
}

// attributes sets the extended attributes that Tree reads.
func (x *extraction) attributes(name string, h *tar.Header) error {
	for record, value := range h.PAXRecords {
		attribute, ok := strings.CutPrefix(record, "SCHILY.xattr.")
		if !ok || !strings.HasPrefix(attribute, "user.") && (attribute != "security.capability" || !x.owners) {
			continue
		}
		file, err := x.root.Open(name)
		if err != nil {
			return err
		}
		err = unix.Fsetxattr(int(file.Fd()), attribute, []byte(value), 0)
		file.Close()
		if err != nil {
			return fmt.Errorf("set attribute %s: %w", attribute, err)
		}
	}
	return nil
}

func (x *extraction) finishFolders() error {
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(x.folders))) {
		if err := x.finish(name, x.folders[name]); err != nil {
			return fmt.Errorf("/%s: %w", name, err)
		}
	}
	return nil
}
