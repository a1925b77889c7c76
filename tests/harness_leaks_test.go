package tests

import (
	"bytes"
	"crypto/sha512"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// close deletes the pods that are still in the machine, and checks that nothing is left of them.
func (b *machine) close() {
	b.note()
	for _, info := range b.ps() {
		if r := b.launcher("rm", "--force", info.UUID); r.code != 0 {
			b.t.Errorf("delete pod %s: %s", info.Name, r.stderr)
		}
	}
	for _, dir := range slices.Backward(b.unmount) {
		if err := unix.Unmount(dir, 0); err != nil {
			b.t.Errorf("something of a pod holds what the test has mounted on %s: %v", dir, err)
		}
	}
	b.checkGone()
	b.checkLayers()
}

// podInfo is a pod in the output of `launcher ps --all --json`.
type podInfo struct {
	UUID, Name, State, Log string
	PID                    int
	Exit                   *struct {
		Code   int
		Signal string
	}
}

func (b *machine) ps() []podInfo {
	b.t.Helper()
	var all []podInfo
	for line := range strings.Lines(b.must("ps", "--all", "--json")) {
		var one podInfo
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			b.t.Fatalf("%v: %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// namespaceKinds returns the kinds of namespaces that a pod can have.
func namespaceKinds() []string { return []string{"mnt", "net", "pid", "ipc", "uts"} }

// note records the namespaces of the machine's processes, and when it has seen them, so that
// checkProcesses can look for them when the pods are gone.
func (b *machine) note() {
	for _, pid := range b.processes() {
		for _, kind := range namespaceKinds() {
			own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
			host, hostErr := os.Readlink("/proc/self/ns/" + kind)
			if err == nil && hostErr == nil && own != host && own != b.network {
				b.namespaces[own] = now()
			}
		}
	}
}

// now returns the time since boot in the unit of startOf.
func now() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it exists since Linux 2.6.39
	return uint64(t.Nano()) / uint64(clockTick)
}

// clockTick is the unit of times in /proc/PID/stat on every Linux that Go knows.
const clockTick = 10 * time.Millisecond

const never = math.MaxUint64

// startOf returns when a process was started, in clock ticks since boot. For a process that does not
// exist, or that has ended and is not reaped yet, it returns never.
func startOf(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return never
	}
	// The second field, the name in parentheses, may contain any characters.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil || fields[0] == "Z" {
		return never
	}
	return start
}

// allProcesses returns the PIDs of all processes.
func allProcesses() []int {
	entries, _ := os.ReadDir("/proc") // an error: no processes
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes returns the PIDs in the cgroups of the machine's pods.
func (b *machine) processes() []int {
	var pids []int
	for _, pid := range allProcesses() {
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && strings.Contains(string(groups), "/"+b.cgroup+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// checkGone checks that nothing is left of the pods, except what apps wrote to the host's volumes.
func (b *machine) checkGone() {
	b.t.Helper()
	b.checkProcesses()
	b.checkFiles()
	for _, group := range b.groups() {
		b.t.Errorf("left: cgroup %s", group)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), b.pods) {
		b.t.Errorf("left mounted on the host: %v\n%s", err, mounts)
	}
}

// checkProcesses looks for processes of the machine by their cgroups, their namespaces, and their
// mounts. The kernel may not have removed a process that was reaped a moment ago, so checkProcesses
// looks again before it fails.
func (b *machine) checkProcesses() {
	b.t.Helper()
	var left []string
	poll.Until(10*time.Second, 5*time.Millisecond, func() bool {
		left = b.strays()
		return left == nil
	})
	for _, stray := range left {
		b.t.Errorf("left: %s", stray)
	}
}

func (b *machine) strays() []string {
	var left []string
	for _, pid := range allProcesses() {
		start, why := startOf(pid), ""
		if start == never || start < b.born && pid != os.Getpid() {
			continue
		}
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // a gone one has none
		mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if strings.Contains(string(groups), "/"+b.cgroup+"/") {
			why = "its cgroup"
		} else if strings.Contains(string(mounts), b.pods) && pid != os.Getpid() {
			why = "its mounts"
		}
		for _, kind := range namespaceKinds() {
			// The kernel reuses a namespace's number. A process that started after the last
			// look at the namespace is in another one, as is one from before the machine.
			name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
			if err == nil && start < b.namespaces[name] {
				why = name
			}
		}
		if why != "" {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			left = append(left, fmt.Sprintf("process %d (%s): %q", pid, why, line))
		}
	}
	return left
}

// groups returns the cgroups of the machine's pods that are left.
func (b *machine) groups() []string {
	one, _ := filepath.Glob("/sys/fs/cgroup/" + b.cgroup)
	each, _ := filepath.Glob("/sys/fs/cgroup/*/" + b.cgroup)
	return append(one, each...)
}

func (b *machine) checkFiles() {
	b.t.Helper()
	for _, dir := range []string{b.pods, filepath.Join(b.dir, "tmp")} {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		for _, path := range left {
			if name := filepath.Base(path); name != ".lock" && name != ".events" { // the pod store's own
				b.t.Errorf("left: %s %v", path, err)
			}
		}
	}
}

// fileFacts are the properties of a file in a layer that must not change. Every change of a file, its
// attributes or its name changes ctime, which no program can set.
type fileFacts struct {
	mode         uint32
	uid, gid     uint32
	ino          uint64
	nlink        int // the type of st_nlink depends on the architecture
	size         int64
	mtime, ctime syscall.Timespec
	xattrs       string
	content      string // with thorough only
}

// snapshot records all files of the images in a store; if thorough is true, also their contents and
// extended attributes.
func snapshot(store string, thorough bool) (map[string]fileFacts, error) {
	roots, err := filepath.Glob(filepath.Join(store, "*", "rootfs"))
	all := make(map[string]fileFacts)
	for _, root := range roots {
		err = errors.Join(err, addFiles(all, root, thorough))
	}
	return all, err
}

func addFiles(all map[string]fileFacts, root string, thorough bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		facts := fileFacts{
			mode: st.Mode, uid: st.Uid, gid: st.Gid, nlink: int(st.Nlink), ino: st.Ino,
			size: st.Size, mtime: st.Mtim, ctime: st.Ctim,
		}
		if thorough {
			err = facts.addContent(path, info)
		}
		all[path] = facts
		return err
	})
}

func (f *fileFacts) addContent(path string, info fs.FileInfo) error {
	names := make([]byte, 1<<16)
	n, err := unix.Llistxattr(path, names)
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("list attributes of %s: %w", path, err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(names[:max(n, 0)]), "\x00"), "\x00") {
		value := make([]byte, 1<<16)
		n, _ := unix.Lgetxattr(path, name, value) // "" of none
		f.xattrs += fmt.Sprintf("%s=%x ", name, value[:max(n, 0)])
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	data, err := os.ReadFile(path)
	f.content = fmt.Sprintf("%x", sha512.Sum512(data))
	return err
}

// compare lists the differences.
func compare(before, after map[string]fileFacts) []string {
	var changes []string
	for path, was := range before {
		if is, ok := after[path]; !ok {
			changes = append(changes, "gone: "+path)
		} else if is != was {
			changes = append(changes, fmt.Sprintf("changed: %s\n  was %+v\n  is  %+v", path, was, is))
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			changes = append(changes, "new: "+path)
		}
	}
	slices.Sort(changes)
	return changes
}

// snapshotLayers records the files of the machine's image store.
func (b *machine) snapshotLayers() map[string]fileFacts {
	b.t.Helper()
	all, err := snapshot(b.store, false)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// layersAreNow accepts the present state of the machine's image store, after an import.
func (b *machine) layersAreNow() { b.layers = b.snapshotLayers() }

func (b *machine) checkLayers() {
	b.t.Helper()
	for _, change := range compare(b.layers, b.snapshotLayers()) {
		b.t.Error(change)
	}
}
