package containertest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"kurma.io/stager/spec"
)

func processCases() []testCase {
	return []testCase{
		{"working directory", workingDirectory},
		{"working directory that is missing", missingDirectory},
		{"environment", environment},
		{"signals are at their defaults", signals},
		{"capabilities of user 0", capabilitiesOfRoot},
		{"capabilities of another user", capabilitiesOfUser},
		{"ambient capabilities", ambientCapabilities},
		{"no_new_privs", noNewPrivileges},
		{"pending signals and message queues are limited", perUserLimits},
		{"namespaces are the caller's but for mounts", namespaces},
		{"a command is where the app is", commandSurroundings},
		{"a PID namespace of the app's own", ownPIDs},
		{"a PID namespace ends with its app", endOfPIDs},
	}
}

func workingDirectory(b *bench) {
	must(b.t, os.Mkdir(filepath.Join(b.root, "tmp/work"), 0o755))
	s := b.spec()
	s.Process.Dir = "/tmp/work"
	b.wantBoth(s, "pwd", "/tmp/work\n")
	s = b.spec()
	b.wantBoth(s, "pwd", "/\n")
}

// missingDirectory checks that a working directory that is missing is made if the spec says so: in the root, also if that
// is read-only then, and in a volume.
func missingDirectory(b *bench) {
	s := b.spec("pwd")
	s.Process.Dir = "/missing"
	if _, err := b.tryRun(s); err == nil {
		b.t.Error("an app without its working directory has started")
	}
	s = b.sh("pwd; stat -c '%a %u' .")
	s.Process.Dir, s.Process.MakeDir, s.Process.User, s.Process.Group, s.ReadOnlyRoot = "/tmp/new/work", true, "1000", "1000", true
	b.wantRun(s, "/tmp/new/work\n755 0\n")
	s = b.sh("pwd")
	s.Process.Dir, s.Process.MakeDir = "/volume/new", true
	s.Mounts = []spec.Mount{{Source: b.folder(), Target: "/volume"}}
	b.wantRun(s, "/volume/new\n")
	if _, err := os.Stat(filepath.Join(s.Mounts[0].Source, "new")); err != nil {
		b.t.Error(err)
	}
}

func environment(b *bench) {
	env := []string{"PATH=/bin", "HOME=/own", "B=two words", "A=", "C=ü\nline"}
	want := strings.Join(env, "\n") + "\n"
	s := b.spec("env")
	s.Process.Env = env
	b.wantRun(s, want)
	cmd := command("env")
	cmd.Env = env
	b.start(b.spec("sleep", "1000"), spec.Stdio{}).wantExec(cmd, want)
}

// signals checks that an app does not inherit the signals that the supervisor ignores or blocks.
func signals(b *bench) {
	ignored := []os.Signal{unix.SIGHUP, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.Signal(40)}
	signal.Ignore(ignored...)
	defer signal.Reset(ignored...)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blocked := unix.Sigset_t{Val: [16]uint64{1 << (unix.SIGIO - 1)}}
	must(b.t, unix.PthreadSigmask(unix.SIG_BLOCK, &blocked, nil))
	defer func() { must(b.t, unix.PthreadSigmask(unix.SIG_UNBLOCK, &blocked, nil)) }()
	s := b.spec()
	b.wantBoth(s, "exec grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status",
		"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n")
}

const printCapabilities = "exec grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status"

func few() []string { return []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_BIND_SERVICE"} }

func capabilitiesOfRoot(b *bench) {
	s := b.spec()
	s.Process.Capabilities = few()
	b.wantBoth(s, printCapabilities, "CapPrm:\t0000000000000421\nCapEff:\t0000000000000421\nCapBnd:\t0000000000000421\n")
	b.wantBoth(b.spec(), printCapabilities, "CapPrm:\t00000000a80425fb\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\n")
	s = b.spec()
	s.Process.Capabilities = nil
	b.wantBoth(s, printCapabilities, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n")
}

func capabilitiesOfUser(b *bench) {
	s := b.spec()
	s.Process.User, s.Process.Group, s.Process.Capabilities = "1000", "1000", few()
	b.wantBoth(s, printCapabilities, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000421\n")
	b.granted()
	b.wantBoth(s, "/granted/grep CapEff /proc/self/status", "CapEff:\t0000000000000400\n")
}

// ambientCapabilities are those of any user, and of the programs that it executes, but for a program with file
// capabilities. Of user 0 they change nothing but the set itself.
func ambientCapabilities(b *bench) {
	const printAll = "exec grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status"
	s := b.spec()
	s.Process.User, s.Process.Group, s.Process.Capabilities = "1000", "1000", few()
	s.Process.AmbientCapabilities = []string{"CAP_NET_BIND_SERVICE", "CAP_KILL"}
	b.wantBoth(s, printAll, "CapInh:\t0000000000000420\nCapPrm:\t0000000000000420\nCapEff:\t0000000000000420\n"+
		"CapBnd:\t0000000000000421\nCapAmb:\t0000000000000420\n")
	b.granted()
	b.wantBoth(s, "/granted/grep -E 'Cap(Eff|Amb)' /proc/self/status", "CapEff:\t0000000000000400\nCapAmb:\t0000000000000000\n")
	s = b.spec()
	s.Process.Capabilities, s.Process.AmbientCapabilities = few(), []string{"CAP_KILL"}
	b.wantBoth(s, printAll, "CapInh:\t0000000000000020\nCapPrm:\t0000000000000421\nCapEff:\t0000000000000421\n"+
		"CapBnd:\t0000000000000421\nCapAmb:\t0000000000000020\n")
}

// granted makes /granted/grep, whose file capabilities grant CAP_NET_BIND_SERVICE to a process that
// executes it (capabilities(7), revision 2).
func (b *bench) granted() {
	b.t.Helper()
	must(b.t, os.Mkdir(filepath.Join(b.root, "granted"), 0o755))
	b.copy("/bin/busybox", "granted/grep")
	value := binary.LittleEndian.AppendUint32(nil, 0x02000001) // VFS_CAP_REVISION_2, effective
	for _, word := range []uint32{1 << unix.CAP_NET_BIND_SERVICE, 0, 0, 0} {
		value = binary.LittleEndian.AppendUint32(value, word)
	}
	must(b.t, unix.Setxattr(filepath.Join(b.root, "granted/grep"), "security.capability", value, 0))
}

func noNewPrivileges(b *bench) {
	b.granted()
	const script = "/granted/grep -E 'CapEff|NoNewPrivs' /proc/self/status"
	s := b.spec()
	s.Process.User, s.Process.Group = "1000", "1000"
	b.wantBoth(s, script, "CapEff:\t0000000000000400\nNoNewPrivs:\t0\n")
	s = b.spec()
	s.Process.User, s.Process.Group, s.Process.NoNewPrivileges = "1000", "1000", true
	b.wantBoth(s, script, "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n")
}

// perUserLimits checks the limits of what the kernel counts for a user: an app must not take what the user's other
// processes need, including the host's processes. A limit of the caller's that is lower stays.
// perUserLimits checks the limits of what the kernel counts for a user of the whole machine: a soft limit that is lower
// already stays (Main).
func perUserLimits(b *bench) {
	b.wantBoth(b.spec(), "exec sed -n -E 's/^Max (pending signals|msgqueue size) +([0-9]+) +([0-9]+) .*/\\1 \\2 \\3/p' /proc/self/limits",
		fmt.Sprintf("pending signals %d %[1]d\nmsgqueue size %d %d\n", spec.PendingSignals, lowQueueBytes, spec.MessageQueueBytes))
}

// namespaces checks that apps and commands share the pod's namespaces, of which some are the caller's.
func namespaces(b *bench) {
	var want strings.Builder
	other := b.start(b.spec("sleep", "1000"), spec.Stdio{}).main.PID()
	for _, name := range []string{"pid", "ipc", "uts", "net", "user"} {
		pid := other
		if name == "net" || name == "user" {
			pid = os.Getpid()
		}
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		must(b.t, err)
		if name == "user" && b.users() != "" {
			link = b.users()
		}
		fmt.Fprintln(&want, link)
	}
	s := b.spec()
	b.wantBoth(s, "for n in pid ipc uts net user; do readlink /proc/self/ns/$n; done", want.String())
	own, err := os.Readlink("/proc/self/ns/mnt")
	must(b.t, err)
	if r := b.run(b.spec("readlink", "/proc/self/ns/mnt")); r.text == own+"\n" {
		b.t.Error("the app is in the caller's mount namespace")
	}
}

func commandSurroundings(b *bench) {
	s := b.spec("sleep", "1000")
	s.Process.NoNewPrivileges, s.OOMScoreAdj = true, 77
	a := b.start(s, spec.Stdio{})
	var want strings.Builder
	for _, name := range []string{"mnt", "pid", "cgroup"} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", a.main.PID(), name))
		must(b.t, err)
		fmt.Fprintln(&want, link)
	}
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", a.main.PID()))
	must(b.t, err)
	if !strings.Contains(string(cgroups), s.Cgroup+"\n") {
		b.t.Errorf("the app is not in %s:\n%s", s.Cgroup, cgroups)
	}
	script := fmt.Sprintf("for n in mnt pid cgroup; do readlink /proc/self/ns/$n; done; cmp /proc/self/cgroup /proc/%d/cgroup", b.inPod(a.main.PID()))
	a.wantExec(command("sh", "-c", script), want.String())
}

// ownPIDs checks that the app is process 1 of its own namespace, which its /proc shows, and that commands are in it.
func ownPIDs(b *bench) {
	s := b.sh("echo $$; cat /proc/1/comm; ls /proc | grep -c '^[0-9]'; true")
	s.OwnPIDs = true
	r := b.run(s)
	// There are the shell and one or two of its children.
	if count, found := strings.CutPrefix(r.text, "1\nsh\n"); !found || (count != "2\n" && count != "3\n") || r.status != 0 {
		b.t.Errorf("the app writes %q", r.text)
	}
	s = b.spec("sh", "-c", "trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.01; done")
	s.OwnPIDs, s.HideProcesses, s.OOMScoreAdj = true, true, 77
	a := b.start(s, spec.Stdio{})
	var want strings.Builder
	for _, name := range []string{"mnt", "pid", "cgroup"} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", a.main.PID(), name))
		must(b.t, err)
		fmt.Fprintln(&want, link)
	}
	pods := b.run(b.sh("readlink /proc/self/ns/pid")).text
	if strings.Contains(want.String(), pods) {
		b.t.Error("the app is in the pod's PID namespace")
	}
	a.wantExec(command("sh", "-c", "for n in mnt pid cgroup; do readlink /proc/self/ns/$n; done; cat /proc/self/oom_score_adj"), want.String()+"77\n")
	b.wantRun(b.sh("readlink /proc/self/ns/pid"), pods) // the next start is in the pod's again
	a.wantExec(command("sh", "-c", "(sleep 0.01 &); kill -0 1 && echo alive"), "alive\n")
	must(b.t, unix.Kill(a.main.PID(), unix.SIGTERM))
	if status, err := wait(a.main); err != nil || status.ExitStatus() != 3 {
		b.t.Errorf("the app ends with %#x, %v", status, err)
	}
	if _, err := a.tryExec(command("true"), spec.Stdio{}); err == nil {
		b.t.Error("a command has started in a namespace without its first process")
	}
}

func endOfPIDs(b *bench) {
	s := b.spec("sleep", "1000")
	s.OwnPIDs = true
	a := b.start(s, spec.Stdio{})
	cmd, err := a.tryExec(command("sleep", "1000"), spec.Stdio{})
	must(b.t, err)
	must(b.t, unix.Kill(a.main.PID(), unix.SIGKILL))
	if status, err := wait(cmd); err != nil || status.Signal() != unix.SIGKILL {
		b.t.Errorf("the command ends with %#x, %v", status, err)
	}
}
