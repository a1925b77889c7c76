package tests

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A command of an unprivileged user locks its stdout and stderr, which its caller reads: the call ends at its timeout,
// and leaves no process outside of the pod. The next command finds none of it, and the server ends on SIGTERM.
func TestHostileCommandsLockTheirStreams(t *testing.T) {
	p := newPod(t)
	id := p.startNew(p.withHolder())
	hold := func(timeout int64) error {
		r := &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"/holder"}, Timeout: timeout}
		_, err := p.ExecSync(t.Context(), r)
		return err
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if err := hold(5); status.Code(err) != codes.DeadlineExceeded {
				t.Error(err)
			}
		})
	}
	surroundings.Eventually(t, "the pod waits for a locked pipe", p.waitsForPipe)
	callers.Wait()
	if left := p.runs(); left > 0 {
		t.Errorf("%d calls are left", left)
	}
	r, err := p.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"ps"}})
	if err != nil || strings.Contains(string(r.GetStdout()), "holder") {
		t.Errorf("the next command: %s, %v", r.GetStdout(), err)
	}
	p.withstands()
	callers.Go(func() {
		if hold(0) == nil {
			t.Error("the call outlived its server")
		}
	})
	surroundings.Eventually(t, "the pod waits for a locked pipe again", p.waitsForPipe)
	if err := p.server.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.server.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	callers.Wait()
	_ = p.conn.Close()
	p.start()
}

// withHolder returns the configuration of a container with a program that locks its streams.
func (p *pod) withHolder() *runtimeapi.ContainerConfig {
	p.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		p.Fatal(err)
	}
	path := p.path("holder")
	p.write(path, string(program))
	if err := os.Chmod(path, 0o755); err != nil {
		p.Fatal(err)
	}
	config := p.script("exec sleep 1000")
	config.Mounts = []*runtimeapi.Mount{{HostPath: path, ContainerPath: "/holder", Readonly: true}}
	config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: &runtimeapi.Int64Value{Value: 1000}, NoNewPrivs: true,
		Capabilities: &runtimeapi.Capability{DropCapabilities: []string{"ALL"}},
		Seccomp:      &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}}
	return config
}

// waitsForPipe reports whether a thread in kubelet's cgroup waits in the kernel for a pipe that is locked.
func (n *node) waitsForPipe() bool {
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/*")
	for _, task := range tasks {
		state, _ := os.ReadFile(task + "/stat") // a thread may have ended
		where, _ := os.ReadFile(task + "/wchan")
		cgroup, _ := os.ReadFile(task + "/cgroup")
		if bytes.Contains(state, []byte(") D ")) && bytes.Contains(where, []byte("pipe_")) && bytes.Contains(cgroup, []byte(n.cgroup)) {
			return true
		}
	}
	return false
}

// runs returns how many calls of `run` the server has below it.
func (n *node) runs() (count int) {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, _ := os.ReadFile(file) // the process may have ended
		_, after, found := strings.Cut(string(text), " (run) ")
		if fields := strings.Fields(after); found && fields[1] == fmt.Sprint(n.server.Process.Pid) {
			count++
		}
	}
	return count
}
