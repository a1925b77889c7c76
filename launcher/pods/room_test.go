package pods

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// plugin is a network's plugin that counts the calls of `del`.
type plugin struct {
	dels atomic.Int32
	del  func() error
}

func (p *plugin) Start(context.Context) error { return nil }

func (p *plugin) Add(context.Context, networks.Call) ([]byte, error) { return nil, nil }

func (p *plugin) Del(context.Context, networks.Call) error {
	p.dels.Add(1)
	return p.del()
}

// newNetworkStore makes a store whose networks all have this plugin. At the end `del` works, and the pods are deleted.
func newNetworkStore(t *testing.T, del func() error) (*Store, *plugin) {
	s, p := newStore(t), &plugin{del: del}
	s.Connector = &networks.Connector{Plugin: func(string) networks.Plugin { return p }}
	t.Cleanup(func() {
		p.del = func() error { return nil }
		if _, err := s.Collect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, p
}

// onNetwork is the plan of a pod on a network, whose address it asks for unless it is "".
func onNetwork(uuid, network, address string, ports ...uint) Plan {
	a := networks.Attachment{Network: network, Interface: "eth0", Config: "{}"}
	if address != "" {
		a.Config = `{"args":{"cni":{"ips":["` + address + `/24"]}}}`
	}
	plan := Plan{UUID: fakeUUID(uuid), Name: uuid, LogDir: "/log", Networks: []networks.Attachment{a}}
	for _, port := range ports {
		plan.Ports = append(plan.Ports, networks.PortMapping{HostPort: port, ContainerPort: 80, Protocol: "tcp"})
	}
	return plan
}

// make creates a pod, and lets go of it.
func (s *Store) make(t *testing.T, plan Plan) error {
	t.Helper()
	pod, err := s.Create(t.Context(), plan)
	if err == nil {
		err = pod.lock.Close()
	}
	return err
}

// dead makes a pod that is connected with 10.0.0.9 and whose monitor was killed.
func (s *Store) dead(t *testing.T, plan Plan) *Pod {
	t.Helper()
	pod, err := s.Create(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	gone := exec.Command("/bin/true")
	namespace, nsErr := networks.Make(pod.pin())
	if err := errors.Join(nsErr, gone.Run(), os.MkdirAll(filepath.Join(pod.Dir, appLogsDir, "app"), 0o700),
		jsonfile.Write(pod.recordFile(), networks.Record{Begun: 1, Results: []networks.Result{{IP4: &networks.IPConfig{IP: "10.0.0.9/24"}}}})); err != nil {
		t.Fatal(err)
	}
	namespace.Close()
	pod.State.Phase, pod.State.Monitor = Running, Process{PID: gone.Process.Pid, Start: 1}
	if err := errors.Join(pod.save(), pod.lock.Close()); err != nil {
		t.Fatal(err)
	}
	return &pod.Pod
}

// is reads the pod's state.
func (p *Pod) is(t *testing.T) State {
	t.Helper()
	p.State = State{}
	if err := p.refresh(); err != nil {
		t.Fatal(err)
	}
	return p.State
}

// A pod is connected after those that are dead and have its network or port have been disconnected. They keep their logs, but
// for one that was to be deleted at its end.
func TestADeadPodsNetworksAreFreeForTheNext(t *testing.T) {
	s, p := newNetworkStore(t, func() error { return nil })
	dead := s.dead(t, onNetwork("d", "net", "", 80))
	temporary := onNetwork("de", "net", "")
	temporary.Remove = true
	// The second dead pod is made on another network, so that its making does not disconnect the first.
	temporary.Networks[0].Network = "other"
	deleted, apart := s.dead(t, temporary), s.dead(t, onNetwork("dea", "third", ""))
	next := onNetwork("dead", "net", "10.0.0.9", 80)
	next.Networks = append(next.Networks, onNetwork("", "other", "").Networks...)
	if err := s.make(t, next); err != nil || p.dels.Load() != 2 {
		t.Fatalf("%v, %d calls of del", err, p.dels.Load())
	}
	if state := dead.is(t); state.Phase != Exited || state.DisconnectError != "" || state.Exit.Signal != "SIGKILL" {
		t.Errorf("the dead pod: %+v", state)
	}
	for _, file := range []string{dead.recordFile(), dead.pin(), deleted.Dir} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("left: %s", file)
		}
	}
	if _, err := os.Stat(filepath.Join(dead.Dir, appLogsDir, "app")); err != nil {
		t.Errorf("the dead pod's logs: %v", err)
	}
	if state := apart.is(t); state.Phase != Dead {
		t.Errorf("the dead pod of another network: %+v", state)
	}
}

// A pod that cannot be disconnected is in the way of its port and its address alone, and is tried again by the next.
func TestADeadPodThatStaysConnectedIsNamed(t *testing.T) {
	s, p := newNetworkStore(t, func() error { return errors.New("out of order") })
	dead := s.dead(t, onNetwork("d", "net", "", 80))
	for i, tt := range []struct {
		name, words string
		plan        Plan
	}{
		{"the network", "", onNetwork("de", "net", "10.0.0.8", 81)},
		{"the port", "host port already used: port 80/tcp: ", onNetwork("dea", "net", "", 80)},
		{"the port on another network", "host port already used: port 80/tcp: ", onNetwork("dea", "other", "", 80)},
		{"the address", `address 10.0.0.9 of network "net" already used: `, onNetwork("dead", "net", "10.0.0.9")},
	} {
		err := s.make(t, tt.plan)
		if tt.words == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tt.words+`pod "d" has ended, but is still connected to its networks: `) ||
			!strings.Contains(err.Error(), "out of order; launcher gc tries again") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := p.dels.Load(); got != int32(i)+1 {
			t.Errorf("%s: %d calls of del", tt.name, got)
		}
	}
	ended := dead.is(t)
	p.del = func() error { return nil }
	if err := s.make(t, onNetwork("deadpo", "net", "10.0.0.9", 80)); err != nil {
		t.Error(err)
	}
	if state := dead.is(t); state.DisconnectError != "" || !state.Ended.Equal(ended.Ended) {
		t.Errorf("the dead pod: %+v, before %+v", state, ended)
	}
}

// A restart of the machine leaves no network namespaces, and no links, rules and addresses.
func TestADeadPodOfAnEarlierBootIsLeftAlone(t *testing.T) {
	s, p := newNetworkStore(t, func() error { return nil })
	dead := s.dead(t, onNetwork("d", "net", "10.0.0.9", 80))
	if err := unix.Unmount(dead.pin(), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := s.make(t, onNetwork("de", "net", "10.0.0.9", 80)); err != nil || p.dels.Load() != 0 {
		t.Errorf("%v, %d calls of del", err, p.dels.Load())
	}
	if state := dead.is(t); state.Phase != Dead {
		t.Errorf("the dead pod: %+v", state)
	}
}

// While one launcher disconnects a dead pod, another one waits for it only if both pods have a name, a port or
// an address in common, and does not disconnect it again.
func TestOneLauncherDisconnectsADeadPod(t *testing.T) {
	called, enough := make(chan bool, 1), make(chan bool)
	s, p := newNetworkStore(t, func() error {
		called <- true
		<-enough
		return nil
	})
	s.dead(t, onNetwork("d", "net", "10.0.0.9", 80))
	first := make(chan error, 1)
	go func() { first <- s.make(t, onNetwork("de", "net", "")) }()
	select {
	case <-called:
	case err := <-first:
		t.Fatalf("the dead pod was not disconnected: %v", err)
	}
	if err := s.make(t, onNetwork("dea", "net", "", 81)); err != nil {
		t.Errorf("a pod that only shares the network: %v", err)
	}
	named := onNetwork("dead", "another", "")
	named.Name = "d"
	waiting := make(chan error, 3)
	for _, plan := range []Plan{named, onNetwork("deadp", "another", "", 80), onNetwork("deadpo", "net", "10.0.0.9")} {
		go func() { waiting <- s.make(t, plan) }()
	}
	ctx, stop := context.WithCancel(t.Context())
	why := make(chan error, 1)
	go func() {
		_, err := s.Create(ctx, onNetwork("x", "another", "", 80))
		why <- err
	}()
	select {
	case err := <-waiting:
		t.Errorf("a pod was made too early: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	stop()
	if err := <-why; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the context: %v", err)
	}
	close(enough)
	for _, made := range []chan error{first, waiting, waiting, waiting} {
		if err := <-made; err != nil {
			t.Error(err)
		}
	}
	if got := p.dels.Load(); got != 1 {
		t.Errorf("%d calls of del", got)
	}
}

// A pod that is being restarted is disconnected, and keeps its folder although its plan has it deleted at its end.
func TestADeadPodThatIsHeldStays(t *testing.T) {
	s, _ := newNetworkStore(t, func() error { return nil })
	plan := onNetwork("held", "net", "")
	plan.Remove = true
	dead := s.dead(t, plan)
	release, err := dead.Hold()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := s.make(t, onNetwork("next", "net", "")); err != nil {
		t.Fatal(err)
	}
	if state := dead.is(t); state.Phase != Exited {
		t.Errorf("%+v", state)
	}
}

// A network that does not let go of one pod keeps nobody from the others, and the end of ctx ends the work.
func TestDeadPodsAreCollectedOneByOne(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	deleting, goOn := make(chan struct{}), make(chan struct{})
	s, p := newNetworkStore(t, func() error {
		deleting <- struct{}{}
		<-goOn
		return nil
	})
	pods := []*Pod{s.dead(t, onNetwork("a", "one", "")), s.dead(t, onNetwork("b", "two", ""))}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Collect(ctx)
		ended <- err
	}()
	<-deleting
	if pods[0].Locked() == pods[1].Locked() {
		t.Error("both pods are locked, or none")
	}
	stop := errors.New("stop")
	cancel(stop)
	close(goOn)
	if err := <-ended; !errors.Is(err, stop) || p.dels.Load() != 1 {
		t.Errorf("%v after %d calls", err, p.dels.Load())
	}
}
