package server

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// diskUsages are the sizes of writable layers, as they were found a short time ago. A layer may have many millions of
// files, and kubelet asks for all layers of the node every ten seconds: a size is found beside the calls, one at a
// time, and a call has the last one.
type diskUsages struct {
	mu    sync.Mutex
	known map[string]*layerSize // by the container's ID
	walks sync.Mutex            // held while one is found
}

type layerSize struct {
	now      diskUsage
	asked    time.Time
	measured chan struct{} // closed when the measurement that runs has ended; nil if none runs
}

// diskUsage is what folders have.
type diskUsage struct {
	bytes, inodes uint64
	when          time.Time // the end of the measurement; zero before the first
}

const (
	diskUsageAge  = 15 * time.Second       // before a size is found again
	diskUsageWait = 200 * time.Millisecond // of a call for all first sizes: most layers take a few milliseconds
	diskUsageMost = time.Minute            // for one measurement
)

// firstSizes returns until when a call that begins now waits for sizes that are not known yet.
func firstSizes() time.Time { return time.Now().Add(diskUsageWait) }

// of returns what a container has in folders; when is zero if that is not known yet, and not found by until either.
func (d *diskUsages) of(until time.Time, id string, dirs ...string) diskUsage {
	d.mu.Lock()
	size := d.ask(id)
	if size.measured == nil && time.Since(size.now.when) > diskUsageAge {
		size.measured = make(chan struct{})
		go d.measure(size, dirs)
	}
	running, first := size.measured, size.now.when.IsZero()
	d.mu.Unlock()
	if first {
		select {
		case <-running:
		case <-time.After(time.Until(until)):
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return size.now
}

// ask returns the size of a container, and forgets those that nobody has asked for.
func (d *diskUsages) ask(id string) *layerSize {
	if d.known == nil {
		d.known = make(map[string]*layerSize)
	}
	for other, size := range d.known {
		if size.measured == nil && time.Since(size.asked) > diskUsageMost {
			delete(d.known, other)
		}
	}
	if d.known[id] == nil {
		d.known[id] = new(layerSize)
	}
	d.known[id].asked = time.Now()
	return d.known[id]
}

func (d *diskUsages) measure(size *layerSize, dirs []string) {
	d.walks.Lock()
	found := measure(time.Now().Add(diskUsageMost), dirs...)
	d.walks.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	size.now = found
	close(size.measured)
	size.measured = nil
}

// walk measures folders whose owners may want it to fail.
type walk struct {
	until  time.Time
	bytes  uint64
	inodes uint64
	linked map[inode]bool // the files of several names
	// partial says that something is left out, so that an app could hide its files there.
	partial bool
}

type inode struct{ dev, ino uint64 }

const (
	deepest    = 1_000   // folders in each other; each has a descriptor and names
	mostLinked = 1 << 17 // files of several names that count once; more count with each name
	mostLooks  = 3       // at a name that becomes a file whenever it is opened as a folder
)

// measure returns what folders have: the bytes of the blocks of their files, each once, and their number. The folders
// may change meanwhile. A folder that is missing has nothing. If the folders cannot be measured as a whole, measure
// returns the most that they can have: all that is used of their file systems. So an app that hides its files from the
// walk is over every limit that it could be over.
func measure(until time.Time, dirs ...string) diskUsage {
	w := &walk{until: until, linked: make(map[inode]bool)}
	for _, dir := range dirs {
		if !w.enter(unix.AT_FDCWD, dir, 0) {
			w.partial = true
		}
	}
	if w.partial {
		w.bytes, w.inodes = used(dirs)
	}
	return diskUsage{w.bytes, w.inodes, time.Now()}
}

// used returns what is used of the fullest of the folders' file systems.
func used(dirs []string) (bytes, inodes uint64) {
	for _, dir := range dirs {
		var all unix.Statfs_t
		if err := unix.Statfs(dir, &all); err != nil {
			continue // it is missing: an app can do nothing to the folder itself
		}
		bytes = max(bytes, (all.Blocks-all.Bfree)*uint64(all.Frsize))
		inodes = max(inodes, all.Files-all.Ffree)
	}
	return bytes, inodes
}

// left notes that the walk leaves something out, unless an error says that it has just gone.
func (w *walk) left(err error) {
	if !errors.Is(err, unix.ENOENT) {
		w.partial = true
	}
}

// enter counts what is in a folder, by descriptors: a path may be longer than the kernel takes. It reports false if the
// name is not a folder's.
func (w *walk) enter(at int, name string, depth int) bool {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return false
	}
	if err != nil {
		w.left(err)
		return true
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	for depth <= deepest && time.Now().Before(w.until) {
		names, err := folder.Readdirnames(32) // and not all: there may be millions
		for _, name := range names {
			w.look(fd, name, depth)
		}
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			w.left(err)
			return true
		}
	}
	w.partial = true
	return true
}

// look counts a file, or a folder with what is in it.
func (w *walk) look(at int, name string, depth int) {
	for range mostLooks {
		if !w.count(at, name) || w.enter(at, name, depth+1) {
			return
		}
	}
	w.partial = true
}

// count counts a file, and reports whether it is a folder.
func (w *walk) count(at int, name string) (isFolder bool) {
	var info unix.Stat_t
	if err := unix.Fstatat(at, name, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		w.left(err)
		return false
	}
	isFolder = info.Mode&unix.S_IFMT == unix.S_IFDIR
	if file := (inode{info.Dev, info.Ino}); !isFolder && info.Nlink > 1 {
		if w.linked[file] {
			return false
		}
		if len(w.linked) < mostLinked {
			w.linked[file] = true
		}
	}
	const block = 512 // of st_blocks, see stat(2)
	w.bytes += uint64(info.Blocks) * block
	w.inodes++
	return isFolder
}
