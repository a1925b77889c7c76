package tests

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/tests/harness"
	"kurma.io/stager/tests/hostile"
)

// probeProc prints what it can do with files of the supervisor in /proc, by the numbers of the supervisor's threads:
// "read NAME", if there is anything to read, and "write NAME", if a number can be written. A file of a thread is
// task/NAME. Those of the network are left out: they are the pod's.
func probeProc(out io.Writer) error {
	found := map[string]bool{}
	for _, thread := range hostile.Threads(1) {
		dir := fmt.Sprint("/proc/", thread)
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "net" {
				return fs.SkipDir
			}
			name := strings.TrimPrefix(path, dir+"/")
			if parts := strings.SplitN(name, "/", 3); parts[0] == "task" && len(parts) == 3 {
				name = "task/" + parts[2]
			}
			if !entry.IsDir() {
				found["read "+name] = found["read "+name] || canRead(path, entry)
				found["write "+name] = found["write "+name] || canWrite(path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.SkipDir) {
			return err
		}
	}
	for line, can := range found {
		if can {
			fmt.Fprintln(out, line)
		}
	}
	return nil
}

// canRead reports whether there is something to read in a file. A link of the kernel's is followed.
func canRead(path string, entry fs.DirEntry) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := f.Read(make([]byte, 1))
	return n > 0 || entry.Type()&os.ModeSymlink != 0
}

// canWrite reports whether a number can be written to a file. A device is not one of the supervisor's: it masks one.
func canWrite(path string) bool {
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeDevice != 0 {
		return false
	}
	return os.WriteFile(path, []byte("1"), 0) == nil
}

// harmless are the files of the supervisor's threads that the kernel lets any process of the pod read, or user 0 write,
// with the reason why that does no harm, or what prevents the harm. A kernel can lack some.
func harmless() map[string]string {
	const (
		usage    = "what a process uses and waits for, as neighbours have to see of each other (ps)"
		identity = "user and group numbers, limits, cgroup and security profile of a program that everybody knows"
		mounts   = "paths of the pod's images and volumes; an app with " + names.HideProcessesAnnotation + " does not see them"
		kill     = "the supervisor is not in the cgroup in which the kernel looks for a process to kill"
		priority = "a scheduling group that the cgroups of the CPU controller replace"
		accounts = "statistics, and marks of pages, of which the supervisor reads none"
		dump     = "what a core file has, of which the supervisor writes none"
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

// By the numbers of the supervisor's threads, /proc has files that no mask can hide, because threads come and go. An
// app reads and changes nothing in them but what is harmless, user 0 and others. This test fails for a file that a new
// kernel has.
func TestTheSupervisorsThreadsAreGuardedInProc(t *testing.T) {
	t.Parallel()
	b := suite.NewMachine(t)
	dir := b.Folder("probe", 0o755)
	testProgram(b, dir)
	hiding := suite.Shell("hiding", "exec sleep 1000").Annotated(names.HideProcessesAnnotation, "true")
	p := b.Up("pod", harness.PodOf(suite.Shell("a", "exec sleep 1000"), hiding).HostVolume("probe", dir, "/probe"))
	for _, user := range []string{"0", "1000"} {
		out, code := run(p, "a", settings{Exec: []string{"/probe/probe", "proc"}, User: user, Group: user})
		if code != 0 || !strings.Contains(out, "read stat\n") {
			t.Errorf("user %s: exit status %d: %s", user, code, out)
		}
		for line := range strings.Lines(out) {
			can := strings.Replace(strings.TrimSpace(line), " task/", " ", 1)
			if harmless()[can] == "" || user != "0" && strings.HasPrefix(can, "write ") {
				t.Errorf("user %s can %s of the supervisor", user, strings.TrimSpace(line))
			}
		}
		if out, code := run(p, "hiding", settings{Exec: []string{"/probe/probe", "proc"}, User: user, Group: user}); code != 0 || out != "" {
			t.Errorf("user %s in an app that hides processes: exit status %d: %s", user, code, out)
		}
	}
	p.Stop()
}
