package fuseoverlayfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// probeLimit bounds a trial, in which a helper starts and answers a few requests.
const probeLimit = 20 * time.Second

// Probe implements unionfs.Driver. It mounts a root in scratch on one small layer, and does there
// what an app would.
func (d Driver) Probe(scratch string, _ []string) (notes []string, err error) {
	dir, err := os.MkdirTemp(scratch, "probe-"+d.Name()+"-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name(), err)
	}
	err = errors.Join(d.try(dir), os.RemoveAll(dir))
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", d.Name(), scratch, err)
	}
	return []string{
		"rename(2) of a directory of a layer returns EXDEV",
		"FIFOs and device nodes of a layer become regular files when their owner, mode or times are changed",
		`names that begin with ".wh." are reserved`,
	}, nil
}

// try mounts a root in dir and uses it.
func (d Driver) try(dir string) (err error) {
	if _, err := os.Stat(d.Program[0]); err != nil {
		return err
	}
	sub := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"layer", "upper", "work", "target"} {
		if err := os.Mkdir(sub(name), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(sub("layer/file"), nil, 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	process, err := d.mount(ctx, "on trial", dir, sub("target"), []string{sub("layer")})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, process.Kill)()
	defer func() {
		undo := unix.Unmount(sub("target"), unix.MNT_DETACH)
		process.Kill() // other helpers' mount namespaces may have a copy of the mount
		<-process.Done()
		err = errors.Join(err, undo)
	}()
	if err := os.WriteFile(sub("target/new"), []byte("new"), 0o644); err != nil {
		return fmt.Errorf("hold a new file: %w", err)
	}
	if err := os.Chmod(sub("target/file"), 0o600); err != nil {
		return fmt.Errorf("hold a changed file: %w", err)
	}
	if err := os.Remove(sub("target/file")); err != nil {
		return fmt.Errorf("hold a deleted file: %w", err)
	}
	return nil
}
