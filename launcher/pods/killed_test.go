package pods

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/names"
	"kurma.io/stager/tests/surroundings"
)

// callerWord makes this program the caller of a call-in: of a pod in a store, whose cgroup is named too.
const callerWord = "caller-of-a-test"

// callAsTest executes the call-in "wait", and returns an exit code.
func callAsTest(dir, group, uuid string) int {
	pod, err := Open(dir, group).Get(uuid)
	if err != nil {
		return 2
	}
	code, _ := pod.Execute(context.Background(), Call{Name: "wait", Stdio: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})
	return code
}

// The kernel kills a call-in with its caller, and a stager with its monitor: neither could end otherwise.
func TestAKilledLauncherLeavesNoProcess(t *testing.T) {
	s := newStore(t)
	m := startTestMonitor(t, s)
	keeper := s.newPodOf(t, m.UUID, "killed", "while :; do /busybox sleep 1000; done\n")
	callIn := filepath.Join(keeper.Plan.StagerRoot, names.CallInDir, "wait")
	script := []byte(interpreter + "echo $$; exec /busybox sleep 1000\n")
	if err := errors.Join(os.MkdirAll(filepath.Dir(callIn), 0o755), os.WriteFile(callIn, script, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := m.HandOver(t.Context(), keeper); err != nil {
		t.Fatal(err)
	}
	found, err := s.Get(m.UUID)
	if err != nil {
		t.Fatal(err)
	}
	killCaller(t, s, m.UUID)
	stager, err := unix.PidfdOpen(found.State.Stager.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(stager)
	if err := m.process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-m.ended
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(stager), Events: unix.POLLIN}}, int(surroundings.Patience.Milliseconds())); n != 1 {
		t.Errorf("the stager lives without its monitor: %v", err)
		_ = unix.PidfdSendSignal(stager, unix.SIGKILL, nil, 0)
	}
	if found, err = s.Get(m.UUID); err == nil {
		err = s.Remove(t.Context(), found, true)
	}
	if err != nil {
		t.Error(err)
	}
}

// killCaller kills the caller of a call-in, and waits for the call-in's end.
func killCaller(t *testing.T, s *Store, uuid string) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	caller := exec.Command("/proc/self/exe", callerWord, s.dir, s.cgroup, uuid)
	caller.Stdout = write
	err = caller.Start()
	write.Close()
	if err == nil {
		err = read.SetReadDeadline(time.Now().Add(surroundings.Patience))
	}
	if err != nil {
		t.Fatal(err)
	}
	_, upErr := read.Read(make([]byte, 16))
	_ = caller.Process.Kill()
	_ = caller.Wait()
	// The call-in has the pipe open for as long as it lives.
	if _, err := io.Copy(io.Discard, read); upErr != nil || err != nil {
		t.Errorf("the call-in lives without its caller: %v, %v", upErr, err)
	}
}

// After a restart of the machine a process may have the PID and the start time of a pod's stager: it is not killed.
func TestAProcessOfThisBootIsNoStagerOfAnEarlierOne(t *testing.T) {
	s := newStore(t)
	pod, err := s.Create(t.Context(), Plan{UUID: fakeUUID("boot"), Name: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "1000")
	if err := surroundings.Start(other); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	process, err := identify(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]any{"phase": Running, "stager": map[string]any{"pid": process.PID, "start": process.Start, "boot": "earlier"}}
	if err := errors.Join(jsonfile.Write(filepath.Join(pod.Dir, stateFile), state), pod.lock.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context()); err != nil {
		t.Error(err)
	}
	if ended, err := process.ended(); ended || err != nil {
		t.Errorf("a process that is not the pod's was killed: %v", err)
	}
}

// The exit code of a pod is known when its monitor is killed while it takes the pod down.
func TestAKilledTakeDownKeepsTheExitCode(t *testing.T) {
	var k *Keeper
	var asItIsKilled []byte
	s, _ := newNetworkStore(t, func() (err error) {
		asItIsKilled, err = os.ReadFile(filepath.Join(k.Dir, stateFile))
		return err
	})
	k = s.newPod(t, "exits", "exit 3\n")
	k.Plan.Networks = onNetwork("", "net", "").Networks
	if _, err := k.Run(t.Context(), true, noted); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(k.Dir, stateFile), asItIsKilled, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := s.Get(k.Plan.UUID)
	if err != nil || p.State.Phase != Dead {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, phase := range []Phase{Dead, Exited} {
		if code, _ := p.Outcome(); code == nil || *code != 3 || p.State.Phase != phase {
			t.Errorf("%s: code %v", p.State.Phase, code)
		}
		if err := s.Stop(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.is(t)
	}
}
