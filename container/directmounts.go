package container

// #include "child.h"
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"kurma.io/stager/pid1"
	"kurma.io/stager/spec"
)

// assembly makes the mounts of an app's root, detached from every mount namespace, for the child to attach.
type assembly struct {
	forked
	container   *container
	stdio       spec.Stdio
	ready       *os.File // our end of the pipe forked.ready
	terminal    terminal
	cgroupFiles cgroupFiles
	opened      []*os.File
}

func (a *assembly) close() {
	a.terminal.close()
	a.cgroupFiles.close()
	closeAll(append(a.opened, a.ready))
}

// hold adds a file that close closes to those of the child, and returns its index.
func (a *assembly) hold(f *os.File) int {
	a.opened = append(a.opened, f)
	a.files = append(a.files, f)
	return len(a.files) - 1
}

func (a *assembly) add(o operation) { a.operations = append(a.operations, o) }

// make makes the root with its mounts and masks, and opens the child's other files.
func (a *assembly) make(config *configs.Config, l *firstProcess) (err error) {
	a.files = append(make([]*os.File, 3), l.files(treeFiles(l.trees)...)...)
	a.ownPIDs = a.container.spec.OwnPIDs
	a.shim, a.keyring, a.label = l.first(), a.container.keyring(), a.container.spec.SELinuxLabel
	if err := a.openCgroups(); err != nil {
		return err
	}
	ready, write, err := os.Pipe()
	if err != nil {
		return err
	}
	a.ready, a.forked.ready = write, a.hold(ready)
	if users := a.container.spec.UserNamespace; users != nil {
		a.owner = users.HostID
	}
	root, err := openTree(config.Rootfs, "/", unix.AT_RECURSIVE, unix.MountAttr{Propagation: unix.MS_SLAVE})
	if err != nil {
		return err
	}
	a.root = a.hold(root.file)
	if err := a.mount(config); err != nil {
		return err
	}
	if p := &a.container.spec.Process; p.MakeDir && p.Dir != "" {
		a.add(operation{
			kind: C.CHILD_MAKE, flags: C.CHILD_FOLDER, target: p.Dir, what: fmt.Sprintf("make working directory %q", p.Dir),
		})
	}
	a.protect(config)
	return a.mask(config.MaskPaths)
}

// openCgroups adds the files by which the child enters its cgroups; the kernel makes it in that of version 2.
func (a *assembly) openCgroups() (err error) {
	a.cgroupFiles, err = a.container.openCgroupFiles()
	if err != nil {
		return err
	}
	enter := a.cgroupFiles.files
	if a.cgroupFiles.unified != nil {
		enter = enter[:len(enter)-1]
	}
	a.cgroups, a.ncgroups = len(a.files), len(enter)
	a.files = append(a.files, enter...)
	return nil
}

// start forks the child.
func (a *assembly) start() (*pid1.Child, error) {
	return a.container.runtime.fork(&a.forked, a.cgroupFiles.unified)
}

// mount makes the mounts, the nodes in /dev, and the standard streams.
func (a *assembly) mount(config *configs.Config) error {
	made := map[string]*os.File{}
	system := len(config.Mounts) - len(a.container.spec.Mounts)
	for i, m := range config.Mounts {
		if m.Flags&unix.MS_REMOUNT != 0 {
			if err := makeWritable(made[m.Destination]); err != nil {
				return fmt.Errorf("mount %s at %s: %w", m.Source, m.Destination, err)
			}
			continue
		}
		if m.Device == "proc" {
			a.add(procOf(m))
			continue
		}
		users := a.container.users
		if i < system {
			users = nil // of a file system for this pod alone
		}
		var f *os.File
		make := func() (err error) {
			f, err = detached(a.ownedMount(m), users)
			return err
		}
		err := error(nil)
		if m.Device == "mqueue" { // of the pod's IPC namespace
			err = a.container.runtime.init.In(make)
		} else {
			err = make()
		}
		if err != nil {
			return fmt.Errorf("mount %s at %s: %w", m.Source, m.Destination, err)
		}
		made[m.Destination] = f
		o := operation{kind: C.CHILD_ATTACH, flags: C.CHILD_FOLDER, file: a.hold(f), target: m.Destination}
		o.what = fmt.Sprintf("mount %s at %s", m.Source, m.Destination)
		if info, err := f.Stat(); err == nil && !info.IsDir() {
			o.flags = C.CHILD_FILE
		}
		// Links in /dev lead to /proc, and other apps write to /dev/shm.
		if i < system || m.Destination == spec.DevFolder || spec.Inside(m.Destination, spec.DevFolder) {
			o.flags |= C.CHILD_NO_LINKS
		}
		a.add(o)
	}
	if a.container.spec.OwnDevFolder() {
		return a.connectOwn(made[spec.DevFolder])
	}
	if err := a.makeDevices(made[spec.DevFolder], config.Devices); err != nil {
		return err
	}
	return a.connect(made[spec.DevFolder], made["/dev/pts"])
}

// ownedMount has a new tmpfs, which is /dev, belong to user 0 of the container's user namespace.
func (a *assembly) ownedMount(m *configs.Mount) *configs.Mount {
	if a.owner == 0 || m.Device != "tmpfs" {
		return m
	}
	owned := *m
	owned.Data = fmt.Sprintf("uid=%d,gid=%d,%s", a.owner, a.owner, m.Data)
	return &owned
}

// procOf has the child mount /proc, in its own PID namespace.
func procOf(m *configs.Mount) operation {
	const attributes = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC // with the numbers of flags
	return operation{
		kind: C.CHILD_PROC, flags: C.CHILD_FOLDER | C.CHILD_NO_LINKS, set: uint64(m.Flags) & attributes,
		source: strings.TrimPrefix(m.Data, "hidepid="), target: m.Destination, what: "mount proc at /proc",
	}
}

// links are those of a /dev.
var links = map[string]string{ //nolint:gochecknoglobals // a table that is only read
	"ptmx": "pts/ptmx", "core": "/proc/kcore",
	"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
}

// makeDevices fills the detached /dev. Its paths go through /proc/self/fd: nobody else reaches it yet.
func (a *assembly) makeDevices(dev *os.File, nodes []*devices.Device) error {
	top := fmt.Sprintf("/proc/self/fd/%d/", dev.Fd())
	for _, folder := range []string{"pts", "shm", "mqueue"} {
		if err := os.Mkdir(top+folder, 0o755); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := os.Symlink(target, top+name); err != nil {
			return err
		}
	}
	for _, d := range nodes {
		name, below := strings.CutPrefix(d.Path, "/dev/")
		if !below || name == "ptmx" {
			continue // one without a path is a rule of the policy alone
		}
		err := makeNode(top+name, d)
		if errors.Is(err, os.ErrPermission) {
			err = a.bindNode(d)
		}
		if err != nil {
			return fmt.Errorf("make %s: %w", d.Path, err)
		}
	}
	return a.own(top)
}

// own gives all that is in a folder to user 0 of the container's user namespace.
func (a *assembly) own(folder string) error {
	if a.owner == 0 {
		return nil
	}
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(a.owner), int(a.owner)))
	})
}

func makeNode(path string, d *devices.Device) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode, number := uint32(unix.S_IFCHR), unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	if d.Type == devices.BlockDevice {
		mode = unix.S_IFBLK
	}
	if err := unix.Mknod(path, mode|uint32(d.FileMode), int(number)); err != nil {
		return os.NewSyscallError("mknod", err)
	}
	return os.Chmod(path, d.FileMode)
}

// bindNode has the supervisor's node bound, where the kernel lets the supervisor make none.
func (a *assembly) bindNode(d *devices.Device) error {
	t, err := openTree(d.Path, d.Path, 0, unix.MountAttr{Propagation: unix.MS_PRIVATE})
	if err != nil {
		return err
	}
	a.add(operation{
		kind: C.CHILD_ATTACH, flags: C.CHILD_FILE, file: a.hold(t.file), target: d.Path, what: "mount " + d.Path,
	})
	return nil
}

// connect makes the child's standard streams: a terminal of its own devpts, or what stdio says, with its own null
// device.
func (a *assembly) connect(dev, pts *os.File) error {
	if a.forked.terminal = a.stdio.Terminal; a.forked.terminal {
		return a.openConsole(pts)
	}
	std := []*os.File{a.stdio.Stdin, a.stdio.Stdout, a.stdio.Stderr}
	if slices.Contains(std, nil) {
		null, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d/null", dev.Fd()), os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) { // see bindNode
			null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
		}
		if err != nil {
			return err
		}
		a.opened = append(a.opened, null)
		for i, f := range std {
			if f == nil {
				std[i] = null
			}
		}
	}
	copy(a.files, std)
	return nil
}

// connectOwn makes the child's standard streams where the container's /dev is one of its mounts: a terminal of that
// mount's devpts, or what stdio says. The null device is a new one, because any file may be at the mount's null.
func (a *assembly) connectOwn(mounted *os.File) error {
	if a.forked.terminal = a.stdio.Terminal; a.forked.terminal {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
		fd, err := unix.Openat2(int(mounted.Fd()), "pts/ptmx", &how)
		if err != nil {
			return fmt.Errorf("make terminal: %w", &os.PathError{Op: "open", Path: "/dev/pts/ptmx", Err: err})
		}
		ptmx := os.NewFile(uintptr(fd), "ptmx")
		defer ptmx.Close()
		return a.openTerminal(ptmx)
	}
	dev, err := detached(a.ownedMount(&configs.Mount{Source: "tmpfs", Device: "tmpfs", Data: "mode=755,size=64k"}), nil)
	if err != nil {
		return fmt.Errorf("make null device: %w", err)
	}
	defer dev.Close()
	null := &devices.Device{FileMode: 0o666, Rule: devices.Rule{Type: devices.CharDevice, Major: 1, Minor: 3}}
	err = makeNode(fmt.Sprintf("/proc/self/fd/%d/null", dev.Fd()), null)
	if err != nil && !errors.Is(err, os.ErrPermission) { // see bindNode
		return fmt.Errorf("make null device: %w", err)
	}
	return a.connect(dev, nil)
}

// openTerminal makes the terminal of a devpts, by its ptmx.
func (a *assembly) openTerminal(ptmx *os.File) error {
	if err := a.terminal.openAt(ptmx, a.stdio); err != nil {
		return fmt.Errorf("make terminal: %w", err)
	}
	copy(a.files, []*os.File{a.terminal.own, a.terminal.own, a.terminal.own})
	return nil
}

// openConsole makes the terminal, which is also at /dev/console.
func (a *assembly) openConsole(pts *os.File) error {
	ptmx, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d/ptmx", pts.Fd()), unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer ptmx.Close()
	if err := a.openTerminal(ptmx); err != nil {
		return err
	}
	a.add(operation{
		kind: C.CHILD_COPY, flags: C.CHILD_FILE | C.CHILD_NO_LINKS,
		source: "/dev/pts/0", target: "/dev/console", what: "mount console", // the first of a new devpts
	})
	return nil
}

func readOnly(file int, what string) operation {
	return operation{kind: C.CHILD_RESTRICT, file: file, set: unix.MOUNT_ATTR_RDONLY, what: "make " + what + " read-only"}
}

// protect has the root and the read-only paths made read-only.
func (a *assembly) protect(config *configs.Config) {
	if config.Readonlyfs {
		a.add(readOnly(a.root, "root"))
	}
	for _, path := range config.ReadonlyPaths {
		o := readOnly(0, path)
		o.kind, o.flags, o.target = C.CHILD_COPY, C.CHILD_IF_THERE, path
		a.add(o)
	}
}
