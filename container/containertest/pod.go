package containertest

import (
	"slices"
	"strconv"
	"syscall"

	"kurma.io/stager/spec"
)

// Prepare, MakePod, KillPod, Close, Support.
func podCases() []testCase {
	return []testCase{
		{"Prepare kills what a supervisor before has left", leftovers},
		{"KillPod ends every app", killPod},
		{"KillPod before Prepare", killUnprepared},
		{"Close without MakePod", closeUnmade},
		{"Close after a Prepare that has failed", closeFailed},
		{"the pod's limits", podLimits},
		{"Support names what the caller has", support},
	}
}

func leftovers(b *bench) {
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	next := b.make(b.cgroup)
	must(b.t, next.Prepare(b.folder(), spec.Resources{}))
	if _, err := wait(a.main); err != nil {
		b.t.Error(err)
	}
}

func killPod(b *bench) {
	var apps []*app
	for range 2 {
		apps = append(apps, startFamily(b))
	}
	must(b.t, b.runtime.KillPod())
	for _, a := range apps {
		if status, err := wait(a.main); err != nil || status.Signal() != syscall.SIGKILL {
			b.t.Errorf("status %#x, %v", status, err)
		}
		if left := processesIn(a.b.cgroup); len(left) > 0 {
			b.t.Errorf("processes %q are left", left)
		}
	}
}

func killUnprepared(b *bench) {
	must(b.t, b.make(b.cgroup+"-none").KillPod())
	a := b.start(b.spec("sleep", "1000"), spec.Stdio{})
	must(b.t, b.make(b.cgroup).KillPod())
	if _, err := wait(a.main); err != nil {
		b.t.Error(err)
	}
}

func closeUnmade(b *bench) {
	b.prepare(b.cgroup+"-unmade", spec.Resources{}) // the bench closes it
}

func closeFailed(b *bench) {
	r := b.make(b.cgroup + "-failed")
	if err := r.Prepare(b.dir+"/nosuchfolder", spec.Resources{}); err == nil {
		b.t.Error("Prepare succeeds in a folder that does not exist")
	}
	must(b.t, r.Close())
	b.wantNoCgroup(b.cgroup + "-failed")
}

func podLimits(b *bench) {
	cgroup := b.cgroup + "-limits"
	r := b.prepare(cgroup, spec.Resources{MemoryLimit: 64 << 20, PIDs: 100})
	must(b.t, r.MakePod())
	b.wantLimit(cgroup, "memory", "memory.limit_in_bytes", "memory.max", "67108864")
	b.wantLimit(cgroup, "pids", "pids.max", "pids.max", "100")
	s := b.spec("dd", "if=/dev/zero", "of=/dev/null", "bs=100M", "count=1")
	s.Cgroup = cgroup + "/app"
	c, err := r.Container(s)
	must(b.t, err)
	child, err := c.Start(spec.Stdio{})
	must(b.t, err)
	if status, err := wait(child); err != nil || status.Signal() != syscall.SIGKILL {
		b.t.Errorf("an app that exceeds the pod's memory ends with status %#x, %v", status, err)
	}
	must(b.t, c.Destroy())
}

// support checks the parts of Support that can be tried on any machine.
func support(b *bench) {
	have := b.make(b.cgroup + "-support").Support()
	for _, name := range spec.DefaultCapabilities() {
		if !slices.Contains(have.Capabilities, name) {
			b.t.Errorf("%s is not in %q", name, have.Capabilities)
		}
	}
	s := b.sh("cat /proc/self/oom_score_adj; grep -c 'Seccomp:.*2' /proc/self/status")
	s.Process.Capabilities, s.OOMScoreAdj, s.Process.Seccomp = have.Capabilities, have.MinOOMScoreAdj, spec.Seccomp{}
	s.Resources = spec.Resources{}
	if have.MemoryLimits {
		s.Resources.MemoryLimit = 64 << 20
	}
	if have.CPULimits {
		s.Resources.CPUShares = 512
	}
	want := strconv.Itoa(have.MinOOMScoreAdj) + "\n0\n"
	if have.Seccomp {
		want = strconv.Itoa(have.MinOOMScoreAdj) + "\n1\n"
	}
	if r := b.run(s); r.text != want {
		b.t.Errorf("an app with all that is supported has %q, want %q", r.text, want)
	}
	if memory, _ := b.limit(b.cgroup, "memory", "memory.limit_in_bytes", "memory.max"); have.MemoryLimits != (memory != "") {
		b.t.Errorf("support of memory limits is %t, the pod's cgroup has %q", have.MemoryLimits, memory)
	}
	if weight, _ := b.limit(b.cgroup, "cpu", "cpu.shares", "cpu.weight"); have.CPULimits != (weight != "") {
		b.t.Errorf("support of CPU limits is %t, the pod's cgroup has %q", have.CPULimits, weight)
	}
}
