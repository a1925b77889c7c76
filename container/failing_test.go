package container

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/failing"
)

// truePlan is a plan for a program that succeeds.
func truePlan() *shimPlan {
	return &shimPlan{dir: "/", candidates: []string{"/bin/true"}, args: []string{"true"}, memlock: unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}}
}

// runFailing is runShim in a process whose system call fails with EPERM. A zero one fails nowhere.
func runFailing(t *testing.T, plan *shimPlan, fails failing.Call) (report []byte, code int) {
	t.Helper()
	text, err := plan.encode()
	if err != nil {
		t.Fatal(err)
	}
	if fails.Number == 0 {
		return runShim(t, "3", text)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, and its filter with the thread
		if err := fails.Fail(); err != nil {
			t.Error(err)
			return
		}
		report, code = runShim(t, "3", text)
	}()
	<-done
	return report, code
}

// A step that the kernel refuses ends the shim, before the program: it would run with more than it may.
func TestShimStopsWhereTheKernelRefuses(t *testing.T) {
	prctl := func(option uint32) failing.Call {
		return failing.Call{Number: unix.SYS_PRCTL, Args: map[int]uint32{0: option}}
	}
	landlock := func(p *shimPlan) { p.flags = shimLandlock }
	for name, test := range map[string]struct {
		fails  failing.Call
		change func(*shimPlan)
		step   string
	}{
		"capget":                  {failing.Call{Number: unix.SYS_CAPGET}, nil, "set capabilities"},
		"capset":                  {failing.Call{Number: unix.SYS_CAPSET}, nil, "set capabilities"},
		"dumpable":                {prctl(unix.PR_SET_DUMPABLE), nil, "keep other processes from reading this one"},
		"keep capabilities":       {prctl(unix.PR_SET_KEEPCAPS), nil, "set capabilities"},
		"drop capabilities":       {prctl(unix.PR_CAPBSET_DROP), nil, "drop capabilities"},
		"ambient set":             {prctl(unix.PR_CAP_AMBIENT), func(p *shimPlan) { p.bounding, p.ambient = 1, 1 }, "set capabilities"},
		"setresuid":               {failing.Call{Number: unix.SYS_SETRESUID}, nil, "set user"},
		"setresgid":               {failing.Call{Number: unix.SYS_SETRESGID}, nil, "set groups"},
		"no new privileges":       {prctl(unix.PR_SET_NO_NEW_PRIVS), func(p *shimPlan) { p.flags = shimNoNewPrivs }, "set no_new_privs"},
		"unshare":                 {failing.Call{Number: unix.SYS_UNSHARE}, func(p *shimPlan) { p.flags = shimNewCgroups }, "enter cgroup namespace"},
		"setns of users":          {failing.Call{Number: unix.SYS_SETNS}, func(p *shimPlan) { p.flags = shimJoinUsers }, "join user namespace"},
		"move_mount":              {failing.Call{Number: unix.SYS_MOVE_MOUNT}, func(p *shimPlan) { p.targets = []string{"/"} }, "attach cgroups to /sys/fs/cgroup, which must be a folder and no link"},
		"landlock_create_ruleset": {failing.Call{Number: unix.SYS_LANDLOCK_CREATE_RULESET}, landlock, "enter Landlock domain"},
		"landlock_add_rule":       {failing.Call{Number: unix.SYS_LANDLOCK_ADD_RULE}, landlock, "enter Landlock domain"},
		"landlock_restrict_self":  {failing.Call{Number: unix.SYS_LANDLOCK_RESTRICT_SELF}, landlock, "enter Landlock domain"},
		"getcwd":                  {failing.Call{Number: unix.SYS_GETCWD}, nil, "step 11"}, // SHIM_CHDIR
		"chdir":                   {failing.Call{Number: unix.SYS_CHDIR}, nil, "step 11"},
	} {
		plan, want := truePlan(), unix.EPERM
		if test.change != nil {
			test.change(plan)
		}
		if plan.flags == shimLandlock && landlockABI() == 0 && test.fails.Number != unix.SYS_LANDLOCK_CREATE_RULESET {
			want = unix.EOPNOTSUPP // of the first call
		}
		report, code := runFailing(t, plan, test.fails)
		if len(report) != 8 || shimStep(binary.NativeEndian.Uint32(report)) != test.step || binary.NativeEndian.Uint32(report[4:]) != uint32(want) || code != 126 {
			t.Errorf("%s fails: the shim reports %v and ends with %d, want %v of %q", name, report, code, want, test.step)
		}
	}
}

// The working directory may be closed to the user, or to root without capabilities: one of them enters it.
// A directory that is closed to both stays closed, whatever capabilities the shim still has, and
// it keeps those that it needs afterwards.
func TestShimEntersADirectoryAsRootOrAsTheUser(t *testing.T) {
	roots, users, others := t.TempDir(), t.TempDir(), t.TempDir()
	for dir, uid := range map[string]int{roots: 0, users: 65534, others: 1} {
		for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Dir(dir): 0o711} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(dir, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]int{"/": 0, roots: 0, users: 0, others: 126} {
		plan := truePlan()
		plan.dir, plan.uid, plan.gid, plan.groups = dir, 65534, 65534, []uint32{1}
		if report, code := runFailing(t, plan, failing.Call{}); code != want || (len(report) == 0) != (want == 0) {
			t.Errorf("%s: the shim reports %v and ends with %d", dir, report, code)
		}
	}
}

// The program has the descriptors that the plan leaves it, and none of the shim's, also on a kernel without
// close_range(2).
func TestTheProgramHasNoneOfTheShimsDescriptors(t *testing.T) {
	for _, fails := range []failing.Call{{}, {Number: unix.SYS_CLOSE_RANGE}} {
		for nfds, script := range []string{"[ ! -e /proc/self/fd/3 ]", "[ -e /proc/self/fd/3 ]"} {
			plan := truePlan()
			plan.nfds = uint32(nfds)
			plan.candidates, plan.args = []string{"/bin/sh"}, []string{"sh", "-c", script + " && [ ! -e /proc/self/fd/4 ] && [ ! -e /proc/self/fd/5 ]"}
			if report, code := runFailing(t, plan, fails); len(report) != 0 || code != 0 {
				t.Errorf("call %d fails, %d descriptors: the shim reports %v and the program ends with %d", fails.Number, nfds, report, code)
			}
		}
	}
}
