package identity

import (
	"errors"
	"fmt"
	"os"

	"kurma.io/stager/internal/kernelfs"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"
)

// errNotRegular is the error of OpenRegular for what is not a regular file on a file system
// that stores files.
var errNotRegular = errors.New("not a regular file")

// OpenRegular opens a file of a container for reading, as a process in the container finds it: path
// is resolved within root and cannot lead out of it. Whatever the container's processes do with
// the file, OpenRegular does not wait for them. It refuses what is not a
// regular file, and files of /proc, /sys and their like. It fails with EWOULDBLOCK
// while another process has a lease on the file (fcntl(2), F_SETLEASE). The caller closes the file.
func OpenRegular(root *os.File, path string) (*os.File, error) {
	at, err := pathrs.OpenatInRoot(root, path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	info, err := at.Stat()
	if err != nil {
		return nil, err
	}
	kernels, err := kernelfs.Has(at)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || kernels {
		return nil, fmt.Errorf("open %s: %w", path, errNotRegular)
	}
	return pathrs.Reopen(at, unix.O_RDONLY|unix.O_NONBLOCK)
}
