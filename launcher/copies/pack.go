package copies

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"kurma.io/stager/spec"

	"golang.org/x/sys/unix"
)

const (
	// maxPath limits the paths in an archive, and so the depth of folders.
	maxPath = unix.PathMax
	// maxLinks is how many files with several names are remembered; the names of others become files.
	maxLinks = 1 << 16
	// batch is how many names of a folder are read at once.
	batch = 1 << 10
	// maxHoles limits the bytes of holes in a copy, which are read as zeros: a file of terabytes without data would take
	// hours. What a file system saves by compression counts as well.
	maxHoles = 1 << 38
)

var errHoles = fmt.Errorf("the copy has more than %d bytes of holes, which are read as zeros", int64(maxHoles))

// Pack writes the source to w as a tar archive in which its name is name, or its own if that is "". It calls warn for
// each file that is left out.
func (s *Source) Pack(ctx context.Context, w io.Writer, name string, warn func(string)) error {
	p := &packer{ctx: ctx, out: tar.NewWriter(w), warn: warn, users: s.users, links: make(map[inode]string)}
	if err := p.add(s.file, cmp.Or(name, s.base, ".")); err != nil {
		return err
	}
	return p.out.Close()
}

type inode struct{ dev, ino uint64 }

type packer struct {
	ctx   context.Context
	out   *tar.Writer
	warn  func(string)
	users *spec.UserNamespace
	links map[inode]string // the first names of files that have several

	measure  bool  // add up the room of files instead of writing their contents
	measured int64 // bytes
	holes    int64 // bytes of files that have no room on the disk
}

// inside returns an ID as the tree's users see it, or the kernel's overflow ID if they lack it.
func (p *packer) inside(id uint32) int {
	if own, ok := p.users.Inside(id); ok {
		return int(own)
	}
	return int(id)
}

// add adds a file that is open with O_PATH.
func (p *packer) add(at *os.File, name string) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	if len(name) > maxPath {
		return fmt.Errorf("path longer than %d bytes: %.64s…", maxPath, name)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(at.Fd()), &stat); err != nil {
		return pathError("stat", name, err)
	}
	header := &tar.Header{
		Name: name, Mode: int64(stat.Mode & 0o7777), Uid: p.inside(stat.Uid), Gid: p.inside(stat.Gid),
		ModTime: time.Unix(stat.Mtim.Unix()), Format: tar.FormatPAX,
	}
	switch kind := stat.Mode & unix.S_IFMT; kind {
	case unix.S_IFDIR, unix.S_IFREG:
		err := notOfTheKernel(at)
		if errors.Is(err, errKernel) {
			p.warn(fmt.Sprintf("%q is left out: %v", name, err))
			return nil
		}
		if err != nil {
			return pathError("copy", name, err)
		}
		if kind == unix.S_IFDIR {
			return p.addFolder(at, header)
		}
		return p.addFile(at, header, &stat)
	case unix.S_IFLNK:
		return p.addLink(at, header)
	default:
		p.warn(fmt.Sprintf("%q is left out: a device, FIFO or socket", name))
		return nil
	}
}

func (p *packer) addFolder(at *os.File, header *tar.Header) error {
	name := header.Name
	header.Typeflag, header.Name = tar.TypeDir, name+"/"
	if err := p.out.WriteHeader(header); err != nil {
		return err
	}
	folder, err := reopen(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return pathError("read folder", name, err)
	}
	defer folder.Close()
	for {
		names, err := folder.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pathError("read folder", name, err)
		}
		for _, entry := range names {
			if err := p.addEntry(folder, entry, path.Join(name, entry)); err != nil {
				return err
			}
		}
	}
}

// addEntry adds a file of a folder. A file that has been removed since is left out.
func (p *packer) addEntry(folder *os.File, entry, name string) error {
	fd, err := unix.Openat(int(folder.Fd()), entry, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return pathError("open", name, err)
	}
	at := os.NewFile(uintptr(fd), name)
	defer at.Close()
	return p.add(at, name)
}

func (p *packer) addLink(at *os.File, header *tar.Header) error {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(int(at.Fd()), "", target)
	if err != nil {
		return pathError("read link", header.Name, err)
	}
	header.Typeflag, header.Linkname = tar.TypeSymlink, string(target[:n])
	return p.out.WriteHeader(header)
}

// addFile adds a regular file with the size that it has now.
func (p *packer) addFile(at *os.File, header *tar.Header, stat *unix.Stat_t) error {
	header.Typeflag = tar.TypeReg
	if stat.Nlink > 1 {
		id := inode{stat.Dev, stat.Ino}
		if first, ok := p.links[id]; ok {
			header.Typeflag, header.Linkname = tar.TypeLink, first
			return p.out.WriteHeader(header)
		}
		if len(p.links) < maxLinks {
			p.links[id] = header.Name
		}
	}
	room := stat.Blocks * 512 // whatever the size of the file system's blocks
	if p.holes += max(stat.Size-room, 0); p.holes > maxHoles {
		return pathError("copy", header.Name, errHoles)
	}
	if p.measure {
		p.measured += room
		return p.out.WriteHeader(header)
	}
	file, err := reopen(at, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return pathError("open", header.Name, err)
	}
	defer file.Close()
	header.Size = stat.Size
	if err := p.out.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(p.out, io.LimitReader(file, stat.Size))
	if err == nil && n < stat.Size {
		err = errors.New("file became shorter during the copy")
	}
	if err != nil {
		return fmt.Errorf("copy %q: %w", header.Name, err)
	}
	return nil
}

func pathError(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }
