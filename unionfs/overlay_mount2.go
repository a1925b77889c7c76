package unionfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
)

// mountLegacy mounts with mount(2). The options must fit into one page, so the layers get short
// names: symbolic links "0", "1", … in the working directory of the calling thread. 500 of them need
// less than 2 KiB.
func (p overlayPlan) mountLegacy(target string) error {
	err := inShortNames(p.links, p.lower, func() error {
		err := unix.Mount("overlay", target, "overlay", 0, p.legacyOptions(true))
		if errors.Is(err, unix.EINVAL) {
			// volatile came with kernel 5.10.
			err = unix.Mount("overlay", target, "overlay", 0, p.legacyOptions(false))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("mount %d layers on %s: %w", len(p.lower), target, err)
	}
	return nil
}

// legacyOptions returns the option text of mount(2), for a thread with the working directory p.links,
// a sibling of the upper and the work directory.
func (p overlayPlan) legacyOptions(volatile bool) string {
	options := []string{
		"lowerdir=" + strings.Join(shortNames(len(p.lower)), ":"),
		"upperdir=../" + filepath.Base(p.upper),
		"workdir=../" + filepath.Base(p.work),
	}
	for _, o := range overlayOptions() {
		options = append(options, o[0]+"="+o[1])
	}
	if volatile {
		options = append(options, "volatile")
	}
	return strings.Join(options, ",")
}

// inShortNames makes the directory links with a link "0", "1", … to each of dirs, and runs do in a
// thread that has it as working directory. The links stay.
func inShortNames(links string, dirs []string, do func() error) error {
	if err := makeDir(links, 0o700); err != nil {
		return err
	}
	for i, name := range shortNames(len(dirs)) {
		if err := os.Symlink(dirs[i], filepath.Join(links, name)); err != nil {
			return err
		}
	}
	return inDir(links, do)
}

// inDir runs do in a thread that has its own working directory.
func inDir(dir string, do func() error) error {
	return thread.New(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unshare working directory: %w", err)
		}
		if err := unix.Chdir(dir); err != nil {
			return &os.PathError{Op: "chdir", Path: dir, Err: err}
		}
		return do()
	})
}

func shortNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}
