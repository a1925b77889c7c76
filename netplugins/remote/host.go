package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// hostRoot is the root of the host's files, in which drivers have their sockets and specifications. It
// stays valid when the process that it was opened by has ended.
type hostRoot struct {
	fd int
}

// openHost opens a root folder.
func openHost(path string) (*hostRoot, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the host's files: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	return &hostRoot{fd}, nil
}

// open opens a path of the host. Links are followed as on the host: none leads out of its root.
func (h *hostRoot) open(path string, flags uint64) (*os.File, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(h.fd, path, how)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EAGAIN, unix.EINTR: // openat2(2): a folder of the path was renamed meanwhile
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// isSocket reports whether a path of the host is a socket.
func (h *hostRoot) isSocket(path string) bool {
	file, err := h.open(path, unix.O_PATH)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// maxFile is the longest specification, certificate or key that is read, in bytes.
const maxFile = 1 << 20

// readFile reads a file of the host.
func (h *hostRoot) readFile(path string) ([]byte, error) {
	file, err := h.open(path, unix.O_RDONLY|unix.O_NONBLOCK) // a pipe in its place must not stop us
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
