package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// root is a root folder in which drivers have their sockets and specifications: the host's, or the container's own,
// which has them in volumes. It stays valid when the process that it was opened by has ended.
type root struct {
	fd   int
	path string // for errors
}

// openRoot opens a root folder.
func openRoot(path string) (*root, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the drivers' files: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	return &root{fd, path}, nil
}

// open opens a path of the root. Links are followed as in a chroot: none leads out of the root.
func (r *root) open(path string, flags uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(r.fd, path, how)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EAGAIN, unix.EINTR: // openat2(2): a folder of the path was renamed meanwhile
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// isSocket reports whether a path is a socket.
func (r *root) isSocket(path string) bool {
	file, err := r.open(path, unix.O_PATH)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// maxFile is the longest specification, certificate or key that is read, in bytes.
const maxFile = 1 << 20

// readFile reads a file.
func (r *root) readFile(path string) ([]byte, error) {
	file, err := r.open(path, unix.O_RDONLY|unix.O_NONBLOCK) // a pipe in its place must not stop us
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxFile)
	}
	return data, nil
}
