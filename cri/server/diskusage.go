package server

import (
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
	diskUsageMost = time.Minute            // for one measurement; the rest of a layer is left out
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
}

type inode struct{ dev, ino uint64 }

const (
	deepest    = 1_000   // folders in each other; each has a descriptor and names. What is below is left out
	mostLinked = 1 << 20 // files of several names that count once; more count with each name
)

// measure returns what folders have: the bytes of the blocks of their files, each once, and their number. The folders
// may change meanwhile. A folder that is missing has nothing.
func measure(until time.Time, dirs ...string) diskUsage {
	w := &walk{until: until, linked: make(map[inode]bool)}
	for _, dir := range dirs {
		w.enter(unix.AT_FDCWD, dir, 0)
	}
	return diskUsage{w.bytes, w.inodes, time.Now()}
}

// enter counts what is in a folder, by descriptors: a path may be longer than the kernel takes.
func (w *walk) enter(at int, name string, depth int) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil || depth > deepest {
		if err == nil {
			_ = unix.Close(fd)
		}
		return // it has just gone, or is left out
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	for time.Now().Before(w.until) {
		names, err := folder.Readdirnames(32) // and not all: there may be millions
		for _, name := range names {
			if w.count(fd, name) {
				w.enter(fd, name, depth+1)
			}
		}
		if err != nil {
			return // the end, or it has just gone
		}
	}
}

// count counts a file, and reports whether it is a folder.
func (w *walk) count(at int, name string) (isFolder bool) {
	var info unix.Stat_t
	if unix.Fstatat(at, name, &info, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return false // it has just gone
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
