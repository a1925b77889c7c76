package server

import (
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// diskUsages are the sizes of writable layers, as they were found a short time ago: a layer may have a million
// files, and kubelet asks for all layers of the node every ten seconds.
type diskUsages struct {
	mu    sync.Mutex
	known map[string]usageThen // by the container's ID
}

type usageThen struct {
	bytes uint64
	when  time.Time
}

// diskUsageAge is how old a size may be.
const diskUsageAge = 15 * time.Second

// of returns the bytes that a container has in folders, and when that was.
func (d *diskUsages) of(id string, now time.Time, dirs ...string) (bytes uint64, when time.Time) {
	d.mu.Lock()
	then, ok := d.known[id]
	d.mu.Unlock()
	if ok && now.Sub(then.when) < diskUsageAge {
		return then.bytes, then.when
	}
	bytes = diskUsage(dirs...)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = make(map[string]usageThen)
	}
	for other, then := range d.known {
		if now.Sub(then.when) > 2*diskUsageAge { // it has ended, or nobody asks for it
			delete(d.known, other)
		}
	}
	d.known[id] = usageThen{bytes, now}
	return bytes, now
}

// diskUsage returns the bytes of the blocks of all files in folders, which may change meanwhile.
func diskUsage(dirs ...string) (total uint64) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // a file that has just gone uses nothing
			}
			if info, err := d.Info(); err == nil {
				const block = 512 // of st_blocks, see stat(2)
				total += uint64(info.Sys().(*syscall.Stat_t).Blocks) * block
			}
			return nil
		})
	}
	return total
}
