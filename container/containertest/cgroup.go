package containertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"kurma.io/stager/spec"
)

const cgroupDir = "/sys/fs/cgroup"

func cgroupCases() []testCase {
	return []testCase{
		{"memory limit and request", memoryLimits},
		{"CPU quota and weight", cpuLimits},
		{"limit of processes", processLimit},
		{"cgroups are removed by Destroy", cgroupRemoved},
		{"an app sees no cgroup around its own", ownCgroupOnly},
		{"an out-of-memory kill of the main process is reported", oomKilled},
		{"another SIGKILL is not an out-of-memory kill", notOOMKilled},
		{"oom_score_adj", oomScore},
	}
}

// groupFolders returns the folders of a cgroup, in each mounted hierarchy that has it.
func groupFolders(cgroup string) []string {
	one, _ := filepath.Glob(cgroupDir + cgroup)
	each, _ := filepath.Glob(cgroupDir + "/*" + cgroup)
	return append(one, each...)
}

func (b *bench) wantNoCgroup(cgroup string) {
	b.t.Helper()
	if left := groupFolders(cgroup); len(left) > 0 {
		b.t.Errorf("cgroups are there: %q", left)
	}
}

// processesIn returns the processes of a cgroup and of the cgroups below it.
func processesIn(cgroup string) []string {
	var out []string
	for _, folder := range groupFolders(cgroup) {
		_ = filepath.WalkDir(folder, func(path string, _ os.DirEntry, _ error) error {
			if filepath.Base(path) == "cgroup.procs" {
				text, _ := os.ReadFile(path)
				out = append(out, strings.Fields(string(text))...)
			}
			return nil
		})
	}
	return out
}

// limit reads a file of a cgroup, by its name in version 1, where the controller has a folder, or 2.
func (b *bench) limit(cgroup, controller, v1, v2 string) (string, error) {
	path := filepath.Join(cgroupDir, controller, cgroup, v1)
	if _, err := os.Stat(cgroupDir + "/cgroup.controllers"); err == nil {
		path = filepath.Join(cgroupDir, cgroup, v2)
	}
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

func (b *bench) wantLimit(cgroup, controller, v1, v2 string, want ...string) {
	b.t.Helper()
	got, err := b.limit(cgroup, controller, v1, v2)
	for _, w := range want {
		if err == nil && got == w {
			return
		}
	}
	b.t.Errorf("%s of %s is %q, %v, want %q", v2, cgroup, got, err, want)
}

// sleeper starts an app that sleeps, with resources.
func (b *bench) sleeper(r spec.Resources) *app {
	b.t.Helper()
	s := b.spec("sleep", "1000")
	s.Resources = r
	return b.start(s, spec.Stdio{})
}

func memoryLimits(b *bench) {
	s := b.spec("sleep", "1000")
	s.Resources = spec.Resources{MemoryLimit: 64<<20 + 1, MemoryRequest: 32 << 20}
	b.start(s, spec.Stdio{})
	b.wantLimit(s.Cgroup, "memory", "memory.limit_in_bytes", "memory.max", "67108864")
	b.wantLimit(s.Cgroup, "memory", "memory.soft_limit_in_bytes", "memory.low", "33554432")
}

func cpuLimits(b *bench) {
	s := b.spec("sleep", "1000")
	s.Resources = spec.Resources{CPUQuota: 10_000, CPUPeriod: 100_000, CPUShares: 512}
	b.start(s, spec.Stdio{})
	b.wantLimit(s.Cgroup, "cpu", "cpu.cfs_quota_us", "cpu.max", "10000", "10000 100000")
	if _, err := os.Stat(cgroupDir + "/cgroup.controllers"); err != nil {
		b.wantLimit(s.Cgroup, "cpu", "cpu.shares", "", "512")
	} else if weight, err := b.limit(s.Cgroup, "", "", "cpu.weight"); err != nil || weight == "100" {
		b.t.Errorf("weight %q, %v", weight, err)
	}
}

func processLimit(b *bench) {
	s := b.spec("sleep", "1000")
	s.Resources = spec.Resources{PIDs: 20}
	b.start(s, spec.Stdio{})
	b.wantLimit(s.Cgroup, "pids", "pids.max", "pids.max", "20")
}

func cgroupRemoved(b *bench) {
	s := b.spec("sleep", "1000")
	a, err := b.try(s, spec.Stdio{})
	must(b.t, err)
	if len(groupFolders(s.Cgroup)) == 0 || len(processesIn(s.Cgroup)) == 0 {
		b.t.Errorf("the app is not in its cgroup %s", s.Cgroup)
	}
	must(b.t, a.end())
	b.wantNoCgroup(s.Cgroup)
}

// ownCgroupOnly: the app's cgroup is the root of all that the app and its commands see, and is read-only.
func ownCgroupOnly(b *bench) {
	other := b.sleeper(spec.Resources{})
	s := b.spec()
	s.Process.Capabilities = append(spec.DefaultCapabilities(), "CAP_SYS_ADMIN")
	script := fmt.Sprintf(`
		cut -d: -f3 /proc/self/cgroup | sort -u
		grep ' - cgroup' /proc/self/mountinfo | cut -d' ' -f4,6 | cut -d, -f1 | grep -v -x '/ ro'
		mkdir -p /tmp/v1 /tmp/v2
		mount -t cgroup -o pids none /tmp/v1 2>/dev/null
		mount -t cgroup2 none /tmp/v2 2>/dev/null
		find /sys/fs/cgroup /tmp -name cgroup.procs -exec cat {} + | grep -x %d
		find /sys/fs/cgroup /tmp -mindepth 1 -type d -name '*-*'
		umount /tmp/v1 /tmp/v2 2>/dev/null; true`, b.inPod(other.main.PID()))
	b.wantBoth(s, script, "/\n")
}

// reporter returns a container as one that recognises out-of-memory kills.
func (a *app) reporter() spec.OOMReporter {
	a.b.t.Helper()
	reporter, ok := a.c.(spec.OOMReporter)
	if !ok {
		a.b.t.Fatal("the container is not an OOMReporter")
	}
	return reporter
}

func oomKilled(b *bench) {
	s := b.spec("dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
	s.Resources.MemoryLimit = 64 << 20
	a := b.start(s, spec.Stdio{})
	status, err := wait(a.main)
	if err != nil || status.Signal() != syscall.SIGKILL || !a.reporter().OOMKilled() {
		b.t.Errorf("status %#x, %v: not an out-of-memory kill", status, err)
	}
}

func notOOMKilled(b *bench) {
	a := b.sleeper(spec.Resources{MemoryLimit: 64 << 20})
	must(b.t, a.main.Signal(syscall.SIGKILL))
	if status, err := wait(a.main); err != nil || status.Signal() != syscall.SIGKILL || a.reporter().OOMKilled() {
		b.t.Errorf("status %#x, %v: an out-of-memory kill", status, err)
	}
}

func oomScore(b *bench) {
	s := b.spec()
	s.OOMScoreAdj = 77
	b.wantBoth(s, "cat /proc/self/oom_score_adj", "77\n")
}
