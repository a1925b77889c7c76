package containertest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

// The root, mounts, devices.
func fileCases() []testCase {
	return []testCase{
		{"the root is the app's", ownRoot},
		{"read-only root", readOnlyRoot},
		{"bind mounts", bindMounts},
		{"recursive read-only bind mounts", recursiveBinds},
		{"a mount that comes later shows up", laterMounts},
		{"a mount propagates as its spec says", propagations},
		{"no mount of the runtime goes out of a shared volume", runtimeMounts},
		{"flags of binds", bindFlags},
		{"a read-only bind keeps the flags of its source", sourceFlags},
		{"mounts are made in order", mountOrder},
		{"masked and read-only paths", maskedPaths},
		{"a privileged app has no masked paths", privilegedPaths},
		{"a privileged app writes to /sys", privilegedSys},
		{"device nodes", deviceNodes},
		{"device policy", devicePolicy},
		{"a mount at /dev is all of the app's /dev", mountedDev},
		{"apps share /dev/shm", sharedMemory},
		{"a linked /dev, /proc or /sys is refused", linkedSystem},
		{"links in the image's /dev lead nowhere", linkedBelowDev},
	}
}

func ownRoot(b *bench) {
	b.write("here", "here\n")
	b.wantBoth(b.spec(), "cat /here; ls -d /containertest-outside 2>/dev/null || echo nothing else; readlink /proc/1/root/here || true",
		"here\nnothing else\n")
	b.wantRun(b.sh("echo written >/new"), "")
	if text, err := os.ReadFile(filepath.Join(b.root, "new")); err != nil || string(text) != "written\n" {
		b.t.Errorf("the app has written %q, %v", text, err)
	}
}

// tryWrite is a script that prints for each path whether it is writable.
const tryWrite = `for f in $FILES; do if (: >$f) 2>/dev/null; then echo writes; else echo not; fi; done`

func readOnlyRoot(b *bench) {
	s := b.spec()
	s.ReadOnlyRoot = true
	s.Mounts = []spec.Mount{{Source: b.folder(), Target: "/v"}}
	must(b.t, os.Mkdir(filepath.Join(b.root, "v"), 0o755))
	s.Process.Env = append(s.Process.Env, "FILES=/new /etc/new /v/new")
	b.wantBoth(s, tryWrite, "not\nnot\nwrites\n")
}

func bindMounts(b *bench) {
	volume, file := b.folder(), filepath.Join(b.folder(), "file")
	must(b.t, os.WriteFile(filepath.Join(volume, "in"), []byte("volume\n"), 0o644))
	must(b.t, os.WriteFile(file, []byte("file\n"), 0o644))
	s := b.spec()
	s.Mounts = []spec.Mount{
		{Source: volume, Target: "/made/on/demand"},
		{Source: volume, Target: "/ro", ReadOnly: true},
		{Source: file, Target: "/etc/file"},
	}
	s.Process.Env = append(s.Process.Env, "FILES=/made/on/demand/new /ro/new")
	b.wantBoth(s, "cat /made/on/demand/in /ro/in /etc/file;"+tryWrite, "volume\nvolume\nfile\nwrites\nnot\n")
}

// submounted makes a folder with a tmpfs on its folder sub; both have a file.
func (b *bench) submounted() string {
	b.t.Helper()
	volume := b.folder()
	sub := filepath.Join(volume, "sub")
	must(b.t, os.Mkdir(sub, 0o755))
	must(b.t, unix.Mount("tmpfs", sub, "tmpfs", 0, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(sub, unix.MNT_DETACH)) })
	must(b.t, os.WriteFile(filepath.Join(sub, "below"), []byte("below\n"), 0o644))
	return volume
}

func recursiveBinds(b *bench) {
	volume := b.submounted()
	s := b.spec()
	s.Mounts = []spec.Mount{
		{Source: volume, Target: "/flat"},
		{Source: volume, Target: "/deep", Recursive: true},
		{Source: volume, Target: "/ro", Recursive: true, ReadOnly: true},
	}
	s.Process.Env = append(s.Process.Env, "FILES=/deep/sub/new /ro/new /ro/sub/new")
	b.wantBoth(s, "ls /flat/sub; cat /deep/sub/below;"+tryWrite, "below\nwrites\nnot\nnot\n")
}

func laterMounts(b *bench) {
	volume := b.folder()
	must(b.t, unix.Mount(volume, volume, "", unix.MS_BIND, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(volume, unix.MNT_DETACH)) })
	must(b.t, unix.Mount("", volume, "", unix.MS_SHARED, ""))
	must(b.t, os.Mkdir(filepath.Join(volume, "sub"), 0o755))
	s := b.spec("sleep", "1000")
	s.Mounts = []spec.Mount{{Source: volume, Target: "/v", Recursive: true}}
	a := b.start(s, spec.Stdio{})
	must(b.t, unix.Mount("tmpfs", filepath.Join(volume, "sub"), "tmpfs", 0, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(filepath.Join(volume, "sub"), unix.MNT_DETACH)) })
	must(b.t, os.WriteFile(filepath.Join(volume, "sub/late"), []byte("late\n"), 0o644))
	a.wantExec(command("cat", "/v/sub/late"), "late\n")
}

// propagations mounts in a shared volume from both sides.
func propagations(b *bench) {
	for propagation, want := range map[spec.Propagation]struct{ in, out string }{
		spec.ToContainer: {"1\n", "0"}, spec.Apart: {"0\n", "0"}, spec.BothWays: {"1\n", "1"},
	} {
		volume := b.folder()
		must(b.t, errors.Join(os.Mkdir(filepath.Join(volume, "in"), 0o755), os.Mkdir(filepath.Join(volume, "out"), 0o755)))
		must(b.t, unix.Mount(volume, volume, "", unix.MS_BIND, ""))
		b.t.Cleanup(func() { must(b.t, unix.Unmount(volume, unix.MNT_DETACH)) })
		must(b.t, unix.Mount("", volume, "", unix.MS_SHARED, ""))
		s := b.spec("sleep", "1000")
		s.Privileged, s.Process.Capabilities = true, append(s.Process.Capabilities, "CAP_SYS_ADMIN")
		s.Mounts = []spec.Mount{{Source: volume, Target: "/v", Recursive: true, Propagation: propagation}}
		a := b.start(s, spec.Stdio{})
		must(b.t, unix.Mount("tmpfs", filepath.Join(volume, "in"), "tmpfs", 0, ""))
		a.wantExec(command("sh", "-c", "mount -t tmpfs none /v/out; grep -c /v/in /proc/self/mounts; true"), want.in)
		mounts, err := os.ReadFile("/proc/thread-self/mounts") // the first thread may be in the container
		must(b.t, err)
		if out := strconv.Itoa(strings.Count(string(mounts), volume+"/out ")); out != want.out {
			b.t.Errorf("%q: the container's mount is outside %s times, want %s", propagation, out, want.out)
		}
		must(b.t, a.end())
	}
}

// runtimeMounts mounts shared volumes where the runtime has mounts of its own. The host sees none of those in the volume,
// and the container sees the volume.
func runtimeMounts(b *bench) {
	for _, target := range []string{
		"/sys", "/sys/fs", "/sys/fs/cgroup", "/sys/firmware", "/dev", "/dev/shm", "/dev/mqueue", "/etc", "/run",
	} {
		volume := b.folder()
		must(b.t, unix.Mknod(filepath.Join(volume, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))) // for commands
		for _, folder := range []string{"fs/cgroup", "cgroup", "firmware"} {
			must(b.t, os.MkdirAll(filepath.Join(volume, folder), 0o755))
		}
		must(b.t, os.WriteFile(filepath.Join(volume, "marker"), nil, 0o644))
		must(b.t, unix.Mount(volume, volume, "", unix.MS_BIND, ""))
		b.t.Cleanup(func() { must(b.t, unix.Unmount(volume, unix.MNT_DETACH)) })
		must(b.t, unix.Mount("", volume, "", unix.MS_SHARED, ""))
		s := b.spec("sleep", "1000")
		s.Privileged, s.Process.Capabilities = true, append(s.Process.Capabilities, "CAP_SYS_ADMIN")
		s.Mounts = []spec.Mount{{Source: volume, Target: target, Recursive: true, Propagation: spec.BothWays}}
		a := b.start(s, spec.Stdio{})
		a.wantExec(command("ls", target+"/marker"), target+"/marker\n")
		mounts, err := os.ReadFile("/proc/thread-self/mounts") // the first thread may be in the container
		must(b.t, err)
		if n := strings.Count(string(mounts), " "+volume); n != 1 {
			b.t.Errorf("%s: the host has %d mounts at and below the volume, want 1", target, n)
		}
		must(b.t, a.end())
	}
}

// showFlags is a script that prints the flags of the mounts at and below /v.
const showFlags = `while read -r _ at _ options _; do
		case $at in /v/*) echo $at $(echo $options | tr , '\n' | grep -x -E 'ro|rw|nosuid|nodev|noexec');; esac
	done </proc/self/mounts`

// bindFlags: a bind and all that is mounted in it have the flags that the spec asks for.
func bindFlags(b *bench) {
	volume := b.submounted()
	must(b.t, unix.Mknod(filepath.Join(volume, "sub/null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	s := b.spec()
	s.Mounts = []spec.Mount{
		{Source: volume, Target: "/v/plain", Recursive: true},
		{Source: volume, Target: "/v/flags", Recursive: true, NoSuid: true, NoDev: true},
		{Source: volume, Target: "/v/nosuid", NoSuid: true},
		{Source: volume, Target: "/v/nodev", Recursive: true, ReadOnly: true, NoDev: true},
	}
	script := "for f in plain flags nodev; do if (: </v/$f/sub/null) 2>/dev/null; then echo opens; else echo not; fi; done;" + showFlags
	b.wantBoth(s, script, `opens
not
not
/v/plain rw
/v/plain/sub rw
/v/flags rw nosuid nodev
/v/flags/sub rw nosuid nodev
/v/nosuid rw nosuid
/v/nodev ro nodev
/v/nodev/sub ro nodev
`)
}

func sourceFlags(b *bench) {
	volume := b.folder()
	must(b.t, unix.Mount("tmpfs", volume, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(volume, unix.MNT_DETACH)) })
	s := b.spec()
	s.Mounts = []spec.Mount{
		{Source: volume, Target: "/v/flat", ReadOnly: true},
		{Source: volume, Target: "/v/deep", ReadOnly: true, Recursive: true},
	}
	b.wantBoth(s, showFlags, "/v/flat ro nosuid nodev noexec\n/v/deep ro nosuid nodev noexec\n")
}

func mountOrder(b *bench) {
	volume := b.folder()
	must(b.t, os.WriteFile(filepath.Join(volume, "in"), []byte("inner\n"), 0o644))
	s := b.spec()
	s.Mounts = []spec.Mount{
		{Source: b.folder(), Target: "/t"},
		{Source: volume, Target: "/t/inner"},
	}
	b.wantBoth(s, "cat /t/inner/in", "inner\n")
}

const tryPaths = `head -c1 /proc/interrupts | grep -c . ; ls /sys/firmware | grep -c .
	for f in /proc/sys/kernel/hostname /sys/kernel/mm/ksm/run; do if (: >>$f) 2>/dev/null; then echo writes; else echo not; fi; done`

func maskedPaths(b *bench) {
	b.wantBoth(b.spec(), tryPaths, "0\n0\nnot\nnot\n")
}

func privilegedPaths(b *bench) {
	s := b.spec()
	s.Privileged = true
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN", "CAP_SYS_RAWIO")
	b.wantBoth(s, "head -c1 /proc/interrupts | grep -c .; (: >>/proc/sys/kernel/hostname) && echo writes", "1\nwrites\n")
}

// privilegedSys checks that the daemon's /sys, which was mounted read-only in the same network namespace before,
// neither makes the app's read-only nor becomes writable: the two share a superblock.
func privilegedSys(b *bench) {
	daemons := b.folder()
	must(b.t, unix.Mount("sysfs", daemons, "sysfs", unix.MS_RDONLY, ""))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(daemons, unix.MNT_DETACH)) })
	s := b.spec()
	s.Privileged = true
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN", "CAP_NET_ADMIN")
	b.wantBoth(s, "(: >>/sys/class/net/lo/ifalias) && echo writes", "writes\n")
	if err := os.WriteFile(filepath.Join(daemons, "class/net/lo/ifalias"), nil, 0); !errors.Is(err, unix.EROFS) {
		b.t.Errorf("the daemon's read-only /sys takes a write: %v", err)
	}
}

func deviceNodes(b *bench) {
	b.wantBoth(b.spec(), `for d in null zero full random urandom tty ptmx; do test -c /dev/$d || echo no $d; done
		for d in shm pts mqueue; do test -d /dev/$d || echo no $d; done
		head -c 1 /dev/zero >/dev/null && head -c 1 /dev/urandom >/dev/null && readlink /dev/stdin && readlink /dev/fd`,
		"/proc/self/fd/0\n/proc/self/fd\n")
}

// devicePolicy checks access, not only the node: user 0 in a container can make a node of any
// device. The device is fuse, which every machine has; the kernel loads its module on open.
func devicePolicy(b *bench) {
	const try = `mknod /$N c 10 229 && mknod /$N.zero c 1 5 && head -c 1 /$N.zero >/dev/null && echo zero
		(: </$N) 2>/dev/null && echo read
		(: >>/$N) 2>/dev/null && echo write
		rm -f /$N /$N.zero; true`
	for _, test := range []struct {
		device, want string
		privileged   bool
	}{{"", "zero\n", false}, {"r", "zero\nread\n", false}, {"rw", "zero\nread\nwrite\n", false}, {"", "zero\nread\nwrite\n", true}} {
		s := b.spec()
		s.Privileged = test.privileged
		if test.device != "" {
			s.Devices = []spec.Device{{Type: 'c', Major: 10, Minor: 229, Access: test.device}}
		}
		s.Process.Env = append(s.Process.Env, "N="+s.Name)
		b.wantBoth(s, try, test.want)
	}
}

// mountedDev mounts a folder with a devpts at /dev. Its nodes stay as they are, also for a terminal, and the device policy
// applies to them.
func mountedDev(b *bench) {
	volume := b.folder()
	node := func(name string, major, minor uint32) {
		must(b.t, unix.Mknod(filepath.Join(volume, name), unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))))
	}
	node("null", 1, 3)
	node("fuse", 10, 229)
	must(b.t, os.Mkdir(filepath.Join(volume, "pts"), 0o755))
	must(b.t, unix.Mount("devpts", filepath.Join(volume, "pts"), "devpts", 0, "newinstance,ptmxmode=0666"))
	b.t.Cleanup(func() { must(b.t, unix.Unmount(filepath.Join(volume, "pts"), unix.MNT_DETACH)) })
	const list = "ls /dev; grep -c ' /dev' /proc/self/mountinfo; (: </dev/fuse) 2>/dev/null && echo opens || echo not"
	for privileged, want := range map[bool]string{false: "not\n", true: "opens\n"} {
		s := b.spec()
		s.Privileged = privileged
		s.Mounts = []spec.Mount{{Source: volume, Target: "/dev", Recursive: true}}
		b.wantBoth(s, list, "fuse\nnull\npts\n2\n"+want)
		s.Process.Args = []string{"sh", "-c", "tty; ls /dev | tr '\\n' ' '"}
		start := func(stdio spec.Stdio) (spec.Running, error) { return b.start(s, stdio).main, nil }
		if got := string(b.onTerminal("app", start)); got != "/dev/pts/0\r\nfuse null pts " {
			b.t.Errorf("with a terminal: %q", got)
		}
	}
}

func sharedMemory(b *bench) {
	b.wantRun(b.sh("echo shared >/dev/shm/x"), "")
	b.wantRun(b.sh("stat -c %a /dev/shm; cat /dev/shm/x"), "1777\nshared\n")
}

// linked makes path in the root a link to the mount target /v of the folder that it returns, with the app's spec.
func (b *bench) linked(path string) (s spec.Spec, folder string) {
	b.t.Helper()
	s, folder = b.spec("true"), b.folder()
	s.Mounts = []spec.Mount{{Source: folder, Target: "/v"}}
	must(b.t, os.RemoveAll(filepath.Join(b.root, path)))
	must(b.t, os.Symlink("../../../v", filepath.Join(b.root, path)))
	return s, folder
}

func (b *bench) wantEmpty(folder string) {
	b.t.Helper()
	if made, err := os.ReadDir(folder); err != nil || len(made) > 0 {
		b.t.Errorf("the folder that the link leads to has %v, %v", made, err)
	}
}

// linkedSystem: a volume is mounted where the link leads, and a runtime that follows it makes device nodes in the
// volume.
func linkedSystem(b *bench) {
	for _, path := range spec.SystemFolders() {
		s, folder := b.linked(path)
		_, err := b.tryRun(s)
		if err == nil || !strings.Contains(err.Error(), strconv.Quote(s.Name)) || !strings.Contains(err.Error(), path+" in the root is a symbolic link") {
			b.t.Errorf("the start with a linked %s ends with: %v", path, err)
		}
		b.wantEmpty(folder)
		must(b.t, os.Remove(filepath.Join(b.root, path)))
		must(b.t, os.Mkdir(filepath.Join(b.root, path), 0o755))
	}
}

func linkedBelowDev(b *bench) {
	for _, path := range []string{"dev/pts", "dev/shm", "dev/mqueue", "dev/null", "dev/console"} {
		s, folder := b.linked(path)
		b.wantRun(s, "")
		b.wantEmpty(folder)
	}
}
