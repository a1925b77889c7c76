package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/spec"
	"kurma.io/stager/supervisor"
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
		}, "show cgroups: mkdir "},
	} {
		r := newRuntime(t)
		if test.change != nil {
			test.change(r)
		}
		s := testSpec(root, test.program)
		c := containerOf(t, r, s)
		p, err := c.Start(supervisor.Stdio{})
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
			if _, err := unix.Wait4(p.PID(), nil, 0, nil); err != nil {
				t.Fatal(err)
			}
			p.Release()
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

// The container has its own cgroup; where there are several hierarchies, in a folder that has one for each. A privileged one
// has what the stager has.
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

// The folder of the hierarchies is all containers' own: none can write to it, nor to its cgroups, and each has its own ones. A volume over /sys
// has no place for them.
func TestAContainerSeesItsOwnCgroupsAlone(t *testing.T) {
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
	s := testSpec(root, "sh", "-c", "echo /sys/*")
	s.Mounts = []spec.Mount{{Source: t.TempDir(), Target: "/sys", Type: "bind"}}
	if text, status := output(t, r, s); text != "/sys/*\n" || status.ExitStatus() != 0 {
		t.Errorf("an empty volume over /sys: %s, %v", text, status)
	}
}

// A command is in the cgroup namespace of its container, or in one like it where the app had ended before the supervisor
// could hold that one. A privileged container and its commands are in the supervisor's.
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

func readLink(t *testing.T, path string) string {
	t.Helper()
	target, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return target
}
