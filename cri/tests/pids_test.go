package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/tests/surroundings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inPIDs returns an editor of a configuration's PID namespace.
func inPIDs(mode runtimeapi.NamespaceMode, target string) func(*runtimeapi.ContainerConfig) {
	return secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: mode, TargetId: target}
	})
}

// A pod whose containers share their processes: they see and signal each other, and a server that was killed finds the
// namespace again, which ends with the sandbox.
func TestContainersShareProcesses(t *testing.T) {
	p := newPod(t)
	shared := inPIDs(runtimeapi.NamespaceMode_POD, "")
	first := p.script("exec sleep 4321")
	shared(first)
	id := p.startNew(first)
	const sleepers = "grep -lsx sleep /proc/[0-9]*/comm"
	show := "until " + sleepers + " >/dev/null; do :; done; readlink /proc/self/ns/pid; cat /proc/1/comm; " + sleepers + " | wc -l"
	seen := p.do(show, shared)
	lines := strings.Split(seen, "\n")
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || len(lines) != 4 || lines[0] == own || lines[1] != "exe" && lines[1] != "kurma-cri" || lines[2] != "1" {
		t.Errorf("%q, %v", seen, err)
	}
	p.checkHolder()
	if again := p.do("(true &); "+show, shared); again != seen {
		t.Errorf("%q, want %q", again, seen)
	}
	r, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", "readlink /proc/self/ns/pid"}})
	if err != nil || string(r.Stdout) != lines[0]+"\n" {
		t.Errorf("a command: %v, %v", r, err)
	}
	p.kill()
	p.start()
	p.do("for p in $("+sleepers+"); do p=${p#/proc/}; kill ${p%/comm}; done", shared)
	if s := p.awaitExit(id); s.ExitCode != 143 {
		t.Errorf("%v", s)
	}
	if _, err := p.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
	surroundings.Eventually(t, "the namespace has no process", func() bool {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
		for _, link := range links {
			if namespace, _ := os.Readlink(link); namespace == lines[0] {
				return false
			}
		}
		return true
	})
}

// checkHolder checks that process 1 of the containers has nothing that an app could want which may trace it.
func (p *pod) checkHolder() {
	p.Helper()
	number, err := os.ReadFile(p.path("state/sandboxes/" + p.id + "/holder"))
	if err != nil {
		p.Fatal(err)
	}
	process := "/proc/" + string(number)
	status, err := os.ReadFile(process + "/status")
	if err != nil {
		p.Fatal(err)
	}
	for _, line := range []string{
		"Uid:\t65534\t65534\t65534\t65534\n", "Gid:\t65534\t65534\t65534\t65534\n", "Groups:\t \n",
		"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
		"SigIgn:\tfffffffffffbfeff\n", // all but SIGKILL and SIGSTOP
	} {
		if !strings.Contains(string(status), line) {
			p.Errorf("the holder's status has no %q: %s", line, status)
		}
	}
	if entries, err := os.ReadDir(process + "/root/"); err != nil || len(entries) > 0 {
		p.Errorf("the holder's root has %v, %v", entries, err)
	}
	if mounts, err := os.ReadFile(process + "/mountinfo"); err != nil || strings.Count(string(mounts), "\n") != 1 {
		p.Errorf("the holder has the mounts %s, %v", mounts, err)
	}
}

// A container of kubectl debug --target reads and writes its target's files by /proc/1/root with the profile sysadmin,
// which makes it privileged, or with CAP_SYS_ADMIN. Another one does not: its stager, which is root, is among the
// processes that it sees.
func TestADebuggerReachesTheFilesOfItsTarget(t *testing.T) {
	p := newPod(t)
	target := p.startNew(p.script("echo of the target >/file; exec sleep 4323"))
	surroundings.Eventually(t, "the target has written its file", func() bool {
		r, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: target, Cmd: []string{"cat", "/file"}})
		return err == nil && string(r.Stdout) == "of the target\n"
	})
	for name, test := range map[string]struct {
		change func(*runtimeapi.LinuxContainerSecurityContext)
		want   string
	}{
		"sysadmin": {func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }, "of the target\nwritten\n"},
		"capability": {func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN", "SYS_PTRACE"}}
		}, "of the target\nwritten\n"},
		"general": {func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_PTRACE"}}
		}, "denied\n"},
		"legacy": {func(*runtimeapi.LinuxContainerSecurityContext) {}, "denied\n"},
	} {
		script := "cd /proc/1/root 2>/dev/null || { echo denied; exit; }; cat file; echo written >" + name + "; cat " + name
		got := p.do(script, secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
			test.change(s)
			s.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target}
		}))
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// An ephemeral container with a target is among its processes, and ends with them.
func TestContainerIsInThePIDNamespaceOfAnother(t *testing.T) {
	p, ctx := newPod(t), t.Context()
	target := p.startNew(p.script("exec sleep 4322"))
	if got := p.do("echo $(tr '\\0' ' ' </proc/1/cmdline); [ $$ -gt 1 ] && kill -0 1 && echo signals", inPIDs(runtimeapi.NamespaceMode_TARGET, target)); got != "sleep 4322\nsignals\n" {
		t.Errorf("%q", got)
	}
	beside := p.script("exec sleep 1000")
	inPIDs(runtimeapi.NamespaceMode_TARGET, target)(beside)
	id := p.startNew(beside)
	if _, err := p.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: target}); err != nil {
		t.Fatal(err)
	}
	if s := p.awaitExit(id); s.ExitCode != 137 {
		t.Errorf("%v", s)
	}
	if _, err := p.createContainer(beside); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Error(err)
	}
	late := p.script("true")
	inPIDs(runtimeapi.NamespaceMode_TARGET, target)(late)
	if _, err := p.createContainer(late); err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("the target has ended: %v", err)
	}
}
