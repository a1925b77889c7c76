package unionfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// AUFS stacks layers with aufs, a file system that some distributions add to
// their kernels (aufs(5)). It takes any number of layers that the kernel was built for.
//
// Layers are plain read-only branches: their names that begin with ".wh."
// hide nothing, as in the other drivers, but aufs does not show them either.
type AUFS struct{}

// Name returns "aufs".
func (AUFS) Name() string { return "aufs" }

// Probe implements Driver.
func (AUFS) Probe(_ string, _ []string) error {
	list, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("aufs: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		if strings.TrimPrefix(strings.TrimSpace(line), "nodev\t") == "aufs" {
			return nil
		}
	}
	return fmt.Errorf("aufs: this kernel does not have it (/proc/filesystems)")
}

// Mount implements Driver.
func (a AUFS) Mount(ctx context.Context, r Root) error {
	r, err := prepare(r, 0)
	if err != nil {
		return mountError(r, a.Name(), err)
	}
	upper := filepath.Join(r.Scratch, "upper")
	if err := makeDir(upper, 0o755); err != nil {
		return mountError(r, a.Name(), err)
	}
	dirs, err := filteredDirs(ctx, r)
	if err != nil {
		return mountError(r, a.Name(), err)
	}
	if err := mountAUFS(filepath.Join(r.Scratch, "l"), upper, dirs, r.Target); err != nil {
		return mountError(r, a.Name(), err)
	}
	return nil
}

// mountAUFS mounts with short names for the branches, because aufs has no way to
// quote ':', ',' and '=' in a path.
func mountAUFS(links, upper string, dirs []string, target string) error {
	steps := aufsOptions("../"+filepath.Base(upper), shortNames(len(dirs)), unix.Getpagesize())
	return inShortNames(links, dirs, func() error {
		for i, options := range steps {
			flags := uintptr(0)
			if i > 0 {
				flags = unix.MS_REMOUNT
			}
			if err := unix.Mount("none", target, "aufs", flags, options); err != nil {
				return undoAUFS(target, i, fmt.Errorf("mount %d layers on %s: %s: %w", len(dirs), target, options, err))
			}
		}
		return nil
	})
}

func undoAUFS(target string, mounted int, err error) error {
	if mounted == 0 {
		return err
	}
	if undo := unix.Unmount(target, unix.MNT_DETACH); undo != nil {
		return fmt.Errorf("%w (and unmount it again: %w)", err, undo)
	}
	return err
}

// aufsOptions returns the option texts of the mount(2) calls that make a root:
// the first mounts, each further one is a remount that appends a branch at the bottom. No
// text is longer than a page with its closing zero byte, which is all
// that mount(2) reads. (aufs(5), "br:" and "append:".)
//
// dirperm1 lets the writable branch alone decide about a directory's
// permissions, so that chmod(2) in the root has its effect.
func aufsOptions(upper string, layers []string, page int) []string {
	const tail = ",dirperm1"
	var first strings.Builder
	first.WriteString("br:" + upper + "=rw")
	n := 0
	for ; n < len(layers); n++ {
		branch := ":" + layers[n] + "=ro"
		if first.Len()+len(branch)+len(tail)+1 > page {
			break
		}
		first.WriteString(branch)
	}
	steps := []string{first.String() + tail}
	for _, l := range layers[n:] {
		steps = append(steps, "append:"+l+"=ro")
	}
	return steps
}
