package containertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// mappedID is user 0 of the suite's user namespaces outside of them.
const mappedID = 1_000_000

// InUserNamespace returns runtimes that start containers in a user namespace, unless they are privileged, with the
// given runtimes: what holds for a container holds there, too. It needs Linux 6.3, which maps the owners of a tmpfs.
func InUserNamespace(newRuntime func(cgroup string) spec.Runtime) func(cgroup string) spec.Runtime {
	return func(cgroup string) spec.Runtime {
		r := newRuntime(cgroup)
		if _, mapped := r.(*mappedRuntime); mapped {
			return r
		}
		return &mappedRuntime{Runtime: r}
	}
}

type mappedRuntime struct {
	spec.Runtime
	dir   string // of Prepare
	roots atomic.Int32
}

// Prepare implements spec.Runtime.
func (r *mappedRuntime) Prepare(dir string, limits spec.Resources) error {
	r.dir = dir + "-mapped"
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return err
	}
	if err := keepUserNamespace(r.namespace()); err != nil {
		return err
	}
	return r.Runtime.Prepare(dir, limits)
}

func (r *mappedRuntime) namespace() *spec.UserNamespace {
	return &spec.UserNamespace{Path: filepath.Join(r.dir, "user"), HostID: mappedID, Size: 1 << 16}
}

// users names the user namespace of the bench's containers, as /proc/PID/ns/user does; "" for the caller's.
func (b *bench) users() string {
	r, mapped := b.runtime.(*mappedRuntime)
	if !mapped {
		return ""
	}
	var st unix.Stat_t
	must(b.t, unix.Stat(r.namespace().Path, &st))
	return fmt.Sprintf("user:[%d]", st.Ino)
}

// ownUsers checks what is different in a user namespace.
func ownUsers(b *bench) {
	b.write("owned", "")
	must(b.t, os.Chown(filepath.Join(b.root, "owned"), 7, 8))
	volume := b.folder()
	s := b.spec()
	s.Mounts = []spec.Mount{{Source: volume, Target: "/volume"}, {Source: b.folder(), Target: "/made/here"}}
	const script = "cat /proc/self/uid_map /proc/self/gid_map | tr -s ' '; stat -c '%u %g' / /owned /volume /made /made/here /dev /dev/null; echo >/dev/shm/own; " +
		"echo >/volume/new; chown 33:44 /volume/new; stat -c '%u %g' /volume/new; kill -0 1 2>&1; sed -n 's/^CapEff:.//p' /proc/self/status"
	ids := fmt.Sprintf(" 0 %d 65536\n", mappedID)
	b.wantBoth(s, script, ids+ids+"0 0\n7 8\n"+strings.Repeat("0 0\n", 5)+"33 44\nsh: can't kill pid 1: Operation not permitted\n00000000a80425fb\n")
	var st unix.Stat_t
	must(b.t, unix.Stat(filepath.Join(volume, "new"), &st))
	if st.Uid != 33 || st.Gid != 44 {
		b.t.Errorf("outside, the volume's file belongs to %d:%d, want 33:44", st.Uid, st.Gid)
	}
	must(b.t, os.Mkdir(filepath.Join(b.root, "closed"), 0o700))
	closed := b.spec()
	closed.Process.User, closed.Process.Dir, closed.Process.Capabilities = "1000", "/closed", nil
	b.wantBoth(closed, "id -u", "1000\n")
	for user, want := range map[string]string{"65535": "", "65536": "65536 IDs", "/outside": "the owner is outside"} {
		b.write("outside", "")
		must(b.t, os.Chown(filepath.Join(b.root, "outside"), 70000, 0))
		s := b.spec("true")
		s.Process.User = user
		if a, err := b.try(s, spec.Stdio{}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			b.t.Errorf("user %s: error %v, want %q", user, err, want)
		} else if err == nil {
			must(b.t, a.end())
		}
	}
}

// Container implements spec.Runtime.
func (r *mappedRuntime) Container(s spec.Spec) (spec.Container, error) {
	if s.Privileged {
		return r.Runtime.Container(s)
	}
	root := filepath.Join(r.dir, fmt.Sprint("root", r.roots.Add(1)))
	s.UserNamespace = r.namespace()
	if err := mountMapped(s.Root, root, s.UserNamespace); err != nil {
		return nil, err
	}
	s.Root = root
	return r.Runtime.Container(s)
}

// keepUserNamespace makes a user namespace, which the file at users.Path keeps.
func keepUserNamespace(users *spec.UserNamespace) error {
	if err := os.WriteFile(users.Path, nil, 0o600); err != nil {
		return err
	}
	// Another program makes it: a runtime may keep the memory of this one from its forks.
	child, err := os.StartProcess("/usr/bin/unshare", []string{"unshare", "--user", "sleep", "60"}, &os.ProcAttr{})
	if err != nil {
		return err
	}
	file := fmt.Sprintf("/proc/%d/ns/user", child.Pid)
	for own, _ := os.Readlink("/proc/self/ns/user"); err == nil; time.Sleep(time.Millisecond) {
		var its string
		if its, err = os.Readlink(file); its != own {
			break
		}
	}
	ids := fmt.Appendf(nil, "0 %d %d", users.HostID, users.Size)
	for _, name := range []string{"uid_map", "gid_map"} {
		err = errors.Join(err, os.WriteFile(fmt.Sprintf("/proc/%d/%s", child.Pid, name), ids, 0))
	}
	err = errors.Join(err, unix.Mount(file, users.Path, "", unix.MS_BIND, ""))
	_ = child.Kill()
	_, _ = child.Wait()
	return err
}

// mountMapped mounts the tree at from to a new folder, where its files belong to the users of the namespace.
func mountMapped(from, to string, users *spec.UserNamespace) error {
	namespace, err := os.Open(users.Path)
	if err != nil {
		return err
	}
	defer namespace.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attributes); err != nil {
		return os.NewSyscallError("mount_setattr", err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH))
}
