package spec

import (
	"fmt"
	"slices"
)

// maxTerminals limits the terminals of a container: the machine has 4096 for all of its devpts (kernel.pty.max,
// pty(7)), and one app must leave some to the others.
const maxTerminals = "max=1024"

// SystemMount is a file system in a container. Options are in the words of an OCI configuration.
type SystemMount struct {
	Target, Type, Source string
	Options              []string
}

// SystemMounts returns the file systems of appc's Linux environment (OS-SPEC.md), which are mounted in this order
// before the container's own mounts. shm is the folder that the pod's containers share as /dev/shm. With a mount of the
// container's own at DevFolder there are none at and below it.
func SystemMounts(s *Spec, shm string) []SystemMount {
	safe := []string{"nosuid", "noexec", "nodev"}
	proc, sys := safe, append(safe, "ro")
	if s.HideProcesses || slices.Contains(s.Process.Capabilities, "CAP_PERFMON") {
		// With CAP_PERFMON a process can open environ, maps and auxv of every process that /proc shows, whatever its
		// Landlock domain (mm_access in kernel/fork.c). So /proc hides the processes that it must not read (proc(5)).
		proc = append(safe, "hidepid=ptraceable")
	}
	if s.Privileged {
		sys = safe
	}
	terminals, ok := s.UserNamespace.Outside(5) // the group tty; devpts cannot be idmapped
	if !ok {
		terminals, _ = s.UserNamespace.Outside(0)
	}
	mounts := []SystemMount{
		{"/proc", "proc", "proc", proc},
		{"/dev", "tmpfs", "tmpfs", []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{"/dev/pts", "devpts", "devpts", []string{
			"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", fmt.Sprintf("gid=%d", terminals), maxTerminals,
		}},
		{"/dev/shm", "bind", shm, append([]string{"bind"}, safe...)},
		{"/dev/mqueue", "mqueue", "mqueue", safe},
		{"/sys", "sysfs", "sysfs", sys},
	}
	if s.Privileged {
		// The mounts of sysfs in a network namespace share a superblock, which is read-only if the first of them is: the
		// daemon's, or another app's. Those keep the read-only flag of their own mount (mount(2), MS_REMOUNT).
		mounts = append(mounts, SystemMount{"/sys", "sysfs", "sysfs", append([]string{"remount"}, safe...)})
	}
	if s.OwnDevFolder() {
		mounts = slices.DeleteFunc(mounts, func(m SystemMount) bool {
			return m.Target == DevFolder || Inside(m.Target, DevFolder)
		})
	}
	return mounts
}

// OwnDevFolder reports whether one of the container's mounts is at DevFolder.
func (s *Spec) OwnDevFolder() bool {
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool { return m.Target == DevFolder })
}
