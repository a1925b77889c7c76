package harness

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
func (b *Machine) close() {
	b.Note()
	for _, info := range b.PS() {
		if r := b.Launcher("rm", "--force", info.UUID); r.Code != 0 {
			b.T.Errorf("delete pod %s: %s", info.Name, r.Stderr)
		}
	}
	for _, dir := range slices.Backward(b.unmount) {
		if err := unix.Unmount(dir, 0); err != nil {
			b.T.Errorf("something of a pod holds what the test has mounted on %s: %v", dir, err)
		}
	}
	b.CheckGone()
	b.checkLayers()
}

// PodInfo is a pod in the output of `launcher ps --all --json`.
type PodInfo struct {
	UUID, Name, State, Log string
	PID                    int
	Exit                   *struct {
		Code   int
		Signal string
	}
}

// PS returns all pods of the machine, also those that have ended.
func (b *Machine) PS() []PodInfo {
	b.T.Helper()
	var all []PodInfo
	for line := range strings.Lines(b.Must("ps", "--all", "--json")) {
		var one PodInfo
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			b.T.Fatalf("%v: %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// NamespaceKinds returns the kinds of namespaces that a pod can have.
func NamespaceKinds() []string { return []string{"mnt", "net", "pid", "ipc", "uts"} }

// Note records the namespaces of the machine's processes, and when it has seen them, so that
// checkProcesses can look for them when the pods are gone.
func (b *Machine) Note() {
	for _, pid := range b.Processes() {
		for _, kind := range NamespaceKinds() {
			own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
			host, hostErr := os.Readlink("/proc/self/ns/" + kind)
			if err == nil && hostErr == nil && own != host && own != b.Network {
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

// AllProcesses returns the PIDs of all processes.
func AllProcesses() []int {
	entries, _ := os.ReadDir("/proc") // an error: no processes
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Processes returns the PIDs in the cgroups of the machine's pods.
func (b *Machine) Processes() []int {
	var pids []int
	for _, pid := range AllProcesses() {
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err == nil && strings.Contains(string(groups), "/"+b.Cgroup+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// CheckGone checks that nothing is left of the pods, except what apps wrote to the host's volumes.
func (b *Machine) CheckGone() {
	b.T.Helper()
	b.CheckProcesses()
	b.checkFiles()
	for _, group := range b.groups() {
		b.T.Errorf("left: cgroup %s", group)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), b.Pods) {
		b.T.Errorf("left mounted on the host: %v\n%s", err, mounts)
	}
}

// CheckProcesses looks for processes of the machine by their cgroups, their namespaces, and their
// mounts. The kernel may not have removed a process that was reaped a moment ago, so checkProcesses
// looks again before it fails.
func (b *Machine) CheckProcesses() {
	b.T.Helper()
	var left []string
	poll.Until(10*time.Second, 5*time.Millisecond, func() bool {
		left = b.strays()
		return left == nil
	})
	for _, stray := range left {
		b.T.Errorf("left: %s", stray)
	}
}

func (b *Machine) strays() []string {
	var left []string
	for _, pid := range AllProcesses() {
		start, why := startOf(pid), ""
		if start == never || start < b.born && pid != os.Getpid() {
			continue
		}
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // a gone one has none
		mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if strings.Contains(string(groups), "/"+b.Cgroup+"/") {
			why = "its cgroup"
		} else if strings.Contains(string(mounts), b.Pods) && pid != os.Getpid() {
			why = "its mounts"
		}
		for _, kind := range NamespaceKinds() {
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
func (b *Machine) groups() []string {
	one, _ := filepath.Glob("/sys/fs/cgroup/" + b.Cgroup)
	each, _ := filepath.Glob("/sys/fs/cgroup/*/" + b.Cgroup)
	return append(one, each...)
}

func (b *Machine) checkFiles() {
	b.T.Helper()
	for _, dir := range []string{b.Pods, filepath.Join(b.Dir, "tmp")} {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		for _, path := range left {
			if name := filepath.Base(path); name != ".lock" && name != ".events" { // the pod store's own
				b.T.Errorf("left: %s %v", path, err)
			}
		}
	}
}

// FileFacts are the properties of a file in a layer that must not change. Every change of a file, its
// attributes or its name changes ctime, which no program can set.
type FileFacts struct {
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
func snapshot(store string, thorough bool) (map[string]FileFacts, error) {
	roots, err := filepath.Glob(filepath.Join(store, "*", "rootfs"))
	all := make(map[string]FileFacts)
	for _, root := range roots {
		err = errors.Join(err, AddFiles(all, root, thorough))
	}
	return all, err
}

// AddFiles adds the files below root to all, by their paths; if thorough is true, with their contents and extended
// attributes.
func AddFiles(all map[string]FileFacts, root string, thorough bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		facts := FileFacts{
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

func (f *FileFacts) addContent(path string, info fs.FileInfo) error {
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

// Compare lists the differences.
func Compare(before, after map[string]FileFacts) []string {
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
func (b *Machine) snapshotLayers() map[string]FileFacts {
	b.T.Helper()
	all, err := snapshot(b.Store, false)
	if err != nil {
		b.T.Fatal(err)
	}
	return all
}

// LayersAreNow accepts the present state of the machine's image store, after an import.
func (b *Machine) LayersAreNow() { b.layers = b.snapshotLayers() }

func (b *Machine) checkLayers() {
	b.T.Helper()
	for _, change := range Compare(b.layers, b.snapshotLayers()) {
		b.T.Error(change)
	}
}
