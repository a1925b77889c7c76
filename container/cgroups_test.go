package container

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// A start leaves no mount in the supervisor's mount namespace, whatever becomes of it, and no cgroup.
func TestAStartLeavesNoMountOrCgroupBehind(t *testing.T) {
	root := busyboxRoot(t)
	for name, test := range map[string]struct {
		program string
		change  func(*Runtime)
		want    string // in the error
	}{
		"an app that runs": {"true", nil, ""},
		"no such program":  {"nosuch", nil, "nosuch"},
		"no such cgroup": {"true", func(r *Runtime) {
			below := filepath.Join(r.hierarchies[0], "cgroup.procs") // a file
			r.hierarchies = append(slices.DeleteFunc(r.hierarchies, func(h string) bool { return h == "" }), below)
			if r.folders == "" { // version 2 alone needs none
				if err := r.makeCgroupFolders(filepath.Dir(r.state)); err != nil {
					t.Fatal(err)
				}
			}
		}, "show cgroups: mkdir "},
	} {
		r := newRuntime(t)
		if test.change != nil {
			test.change(r)
		}
		s := testSpec(root, test.program)
		c := containerOf(t, r, s)
		p, err := c.Start(spec.Stdio{})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Fatalf("%s: %v, want %q", name, err, test.want)
		}
		mounts, readErr := os.ReadFile("/proc/self/mounts")
		if readErr != nil {
			t.Fatal(readErr)
		}
		if strings.Contains(string(mounts), r.state+"/") {
			t.Errorf("%s: mounts are left:\n%s", name, mounts)
		}
		if err == nil {
			<-p.Done()
		}
		if err := c.Destroy(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, pattern := range []string{"", "*"} {
			if left, _ := filepath.Glob(filepath.Join(names.CgroupDir, pattern, s.Cgroup)); left != nil {
				t.Errorf("%s: cgroups are left: %s", name, left)
			}
		}
	}
}

// The container has its own cgroup; where there are several hierarchies, in a folder that has one for each. A
// privileged one has what the stager has.
func TestCgroupsAreShownByTheirHierarchies(t *testing.T) {
	r := newRuntime(t)
	all := r.hierarchies
	for name, test := range map[string]struct {
		privileged  bool
		hierarchies []string
		want        []string // targets
	}{
		"all":                 {false, all, targetsOf(all)},
		"one of version 1":    {false, lastOf(all), targetsOf(lastOf(all))},
		"none":                {false, nil, nil},
		"privileged":          {true, all, []string{names.CgroupDir}},
		"privileged, no such": {true, nil, nil},
	} {
		r.hierarchies = test.hierarchies
		c := containerOf(t, r, testSpec(t.TempDir(), "true"))
		c.spec.Privileged = test.privileged
		trees, err := c.cgroupTrees()
		var targets []string
		for _, tree := range trees {
			targets = append(targets, tree.target)
		}
		closeTrees(trees)
		if err != nil || !slices.Equal(targets, test.want) {
			t.Errorf("%s: the cgroups are at %q, want %q: %v", name, targets, test.want, err)
		}
		if m, err := c.cgroups(); err != nil || m.Destroy() != nil {
			t.Errorf("%s: cgroups are left: %v", name, err)
		}
	}
}

// lastOf returns a list of the last one alone.
func lastOf(hierarchies []string) []string { return hierarchies[len(hierarchies)-1:] }

func targetsOf(hierarchies []string) []string {
	targets := []string{names.CgroupDir}
	for _, h := range hierarchies {
		if h != "" { // version 2 alone
			targets = append(targets, filepath.Join(names.CgroupDir, h))
		}
	}
	return targets
}

// An app sees its own cgroups alone, and cannot write to them, nor to the folder that has them.
func TestAnAppSeesItsOwnCgroupsAlone(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	script := `for d in /sys/fs/cgroup /sys/fs/cgroup/*/; do ! mkdir $d/x 2>/dev/null || echo $d; done; cd /sys/fs/cgroup; echo *`
	text, status := output(t, r, testSpec(root, "sh", "-c", script))
	found := strings.Fields(text)
	for _, h := range r.hierarchies {
		if h != "" && !slices.Contains(found, h) {
			t.Errorf("the hierarchy %s is not in %q", h, text)
		}
	}
	if strings.Contains(text, "/sys/fs/cgroup") || len(r.hierarchies) > 1 && len(found) != len(r.hierarchies) || !status.Exited() {
		t.Errorf("a container can write to its cgroups, or sees others: %s", text)
	}
}

// A privileged app sees the stager's cgroups, can make others in them, and sees what is mounted there later.
func TestAPrivilegedAppSeesTheStagersCgroups(t *testing.T) {
	r := newRuntime(t)
	cgroup := filepath.Join(names.CgroupDir, r.hierarchies[0])
	s := testSpec(busyboxRoot(t), "sleep", "1000")
	s.Privileged = true
	c, _ := startSleeper(t, r, s)
	inner := filepath.Join(cgroup, s.Cgroup, "inner")
	if text, status := execOutput(t, c, rootCommand("mkdir", inner)); status.ExitStatus() != 0 {
		t.Fatalf("a privileged app cannot make a cgroup: %s", text)
	}
	if err := unix.Mount("tmpfs", inner, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	text, _ := execOutput(t, c, rootCommand("sh", "-c", "grep -c '"+inner+" ' /proc/self/mounts"))
	if err := errors.Join(unix.Unmount(inner, unix.MNT_DETACH), os.Remove(inner)); err != nil {
		t.Error(err)
	}
	if shared := isShared(t, names.CgroupDir, cgroup); shared != (text == "1\n") {
		t.Errorf("a later mount is seen %q times, propagation: %v", text, shared)
	}
}

// isShared reports whether one of the mount points has shared propagation (proc_pid_mountinfo(5)).
func isShared(t *testing.T, points ...string) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	shared := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		shared = shared || slices.Contains(points, fields[4]) && strings.HasPrefix(fields[6], "shared:")
	}
	return shared
}

// A volume over /sys may have no place for the cgroups: then the app sees none. A place that is none stops the start:
// the shim follows no link.
func TestAVolumeOverSysHasNoPlaceForCgroups(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	for name, test := range map[string]struct {
		place func(path string) error
		want  string // in the error
	}{
		"none":   {func(string) error { return nil }, ""},
		"a link": {func(path string) error { return os.Symlink("/tmp", path) }, "attach cgroups to /sys/fs/cgroup, which must be a folder and no link: "},
		"a file": {func(path string) error { return os.WriteFile(path, nil, 0o644) }, "attach cgroups to /sys/fs/cgroup, which must be a folder and no link: "},
	} {
		volume := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(volume, "fs"), 0o755), test.place(filepath.Join(volume, "fs/cgroup"))); err != nil {
			t.Fatal(err)
		}
		s := testSpec(root, "sleep", "0")
		s.Mounts = []spec.Mount{{Source: volume, Target: "/sys"}}
		c := containerOf(t, r, s)
		p, err := c.Start(spec.Stdio{})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if err == nil {
			<-p.Done()
		}
		if err := c.Destroy(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A command is in the cgroup namespace of its container, or in one like it where the app had ended before the
// supervisor could hold that one. A privileged container and its commands are in the supervisor's.
func TestACommandSeesTheCgroupsThatTheAppSees(t *testing.T) {
	root := busyboxRoot(t)
	own := readLink(t, "/proc/self/ns/cgroup")
	for name, test := range map[string]struct{ privileged, ended bool }{
		"an app": {false, false}, "an app that had ended": {false, true}, "a privileged app": {true, false},
	} {
		s := testSpec(root, "sleep", "1000")
		s.Privileged = test.privileged
		started, pid := startSleeper(t, newRuntime(t), s)
		c := started.(*container)
		if test.ended {
			c.handles.cgroups.Close()
			c.handles.cgroups = nil
		}
		app := readLink(t, procPath(pid, "ns/cgroup"))
		text, status := execOutput(t, c, rootCommand("sh", "-c", "readlink /proc/self/ns/cgroup; cat /proc/self/cgroup"))
		namespace, groups, _ := strings.Cut(text, "\n")
		if status.ExitStatus() != 0 || (app == own) != test.privileged || (namespace == app) == test.ended || namespace == own != test.privileged {
			t.Errorf("%s is in %s, its command in %s, the supervisor in %s: %v", name, app, namespace, own, status)
		}
		if root := strings.Count(groups, ":/\n"); !test.privileged && root != strings.Count(groups, "\n") {
			t.Errorf("%s: its command is in\n%s", name, groups)
		}
	}
}

// The cgroup namespace of a first process that ends before the shim has made one is the supervisor's. No command enters that one.
func TestTheSupervisorsCgroupNamespaceIsNoContainers(t *testing.T) {
	process, err := os.Open("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	h := handles{process: process}
	defer func() { h.close() }()
	if h.openCgroups(); h.cgroups != nil {
		t.Error("the supervisor's cgroup namespace is taken for a container's")
	}
}

// A command also enters a container whose app has ended at once, as a post-stop handler does.
func TestACommandEntersTheCgroupsOfAnAppThatEndsAtOnce(t *testing.T) {
	r, root := newRuntime(t), busyboxRoot(t)
	for range 10 {
		c := containerOf(t, r, testSpec(root, "true"))
		if _, status := run(t, c); status.ExitStatus() != 0 {
			t.Fatalf("the app ended with %v", status)
		}
		text, status := execOutput(t, c, rootCommand("cat", "/proc/self/cgroup"))
		if status.ExitStatus() != 0 || text == "" || strings.Count(text, ":/\n") != strings.Count(text, "\n") {
			t.Errorf("the command ended with %v and is in\n%s", status, text)
		}
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

func readLink(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}
