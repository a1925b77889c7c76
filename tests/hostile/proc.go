package hostile

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
)

// Proc returns what this process can do with the files in /proc of init's thread, or of a start, by their
// numbers: "read NAME", if there is anything to read, and "write NAME", if a number can be written. A file of a thread
// is task/NAME. The files of the network are left out: they are the pod's.
func Proc(threads ...int) []string {
	found := map[string]bool{}
	for _, thread := range threads {
		dir := fmt.Sprint("/proc/", thread)
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "net" {
				return fs.SkipDir // also of a thread that has ended
			}
			name := strings.TrimPrefix(path, dir+"/")
			if parts := strings.SplitN(name, "/", 3); parts[0] == "task" && len(parts) == 3 {
				name = "task/" + parts[2]
			}
			if !entry.IsDir() {
				for what, can := range map[string]bool{"read ": canRead(path, entry), "write ": canWrite(path)} {
					if can {
						found[what+name] = true
					}
				}
			}
			return nil
		})
	}
	return slices.Sorted(maps.Keys(found))
}

// canRead reports whether there is something to read in a file. A link of the kernel's is followed. It does not wait,
// nor for who has a lease of the file.
func canRead(path string, entry fs.DirEntry) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	n, _ := unix.Read(fd, make([]byte, 1))
	return n > 0 || entry.Type()&os.ModeSymlink != 0
}

// canWrite reports whether a number can be written to a file. A device is not one of init's: it masks one.
func canWrite(path string) bool {
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeDevice != 0 {
		return false
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_TRUNC|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.Write(fd, []byte("1"))
	return err == nil
}

// Harmful returns the lines of Proc that do harm: all but files that the kernel lets any process of the pod read, or user
// 0 write, and that do no harm for the reasons of harmless. root says whether user 0 got the lines.
func Harmful(lines []string, root bool) []string {
	known := harmless()
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return known[strings.Replace(line, " task/", " ", 1)] != "" && (root || strings.HasPrefix(line, "read "))
	})
}

// harmless are the files with the reason why they do no harm, or what prevents the harm. A kernel can lack some.
func harmless() map[string]string {
	const (
		usage    = "what a process uses and waits for, as neighbours have to see of each other (ps)"
		identity = "user and group numbers, limits, cgroup and security profile of a program that everybody knows"
		mounts   = "paths of the pod's images and volumes; an app with " + names.HideProcessesAnnotation + " does not see them"
		kill     = "init is not in the cgroup in which the kernel looks for a process to kill"
		priority = "a scheduling group that the cgroups of the CPU controller replace"
		accounts = "statistics, and marks of pages, of which the stager reads none"
		dump     = "what a core file has, of which init writes none"
	)
	files := map[string]string{
		"write oom_score_adj": kill, "write oom_adj": kill, "write autogroup": priority, "write clear_refs": accounts,
		"write sched": accounts, "write coredump_filter": dump, "read coredump_filter": dump,
		"read ksm_stat": accounts, "read patch_state": accounts, "read ksm_merging_pages": accounts,
		"read mountinfo": mounts, "read mounts": mounts, "read mountstats": mounts,
		"read autogroup": priority, "read oom_adj": kill, "read oom_score": kill, "read oom_score_adj": kill,
	}
	for _, name := range []string{"arch_status", "children", "cmdline", "comm", "sched", "schedstat", "stat", "statm", "status", "wchan"} {
		files["read "+name] = usage
	}
	for _, name := range []string{"attr/current", "attr/apparmor/current", "cgroup", "cpuset", "cpu_resctrl_groups", "gid_map", "limits", "loginuid", "projid_map", "sessionid", "setgroups", "timens_offsets", "uid_map"} {
		files["read "+name] = identity
	}
	return files
}
