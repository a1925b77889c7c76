package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/names"
	"kurma.io/stager/supervisor"
)

// The mounts of a container's cgroups are in the supervisor's mount namespace during its start alone, whatever
// becomes of the start, and no cgroup is left.
func TestAStartLeavesNoCgroupViewBehind(t *testing.T) {
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
