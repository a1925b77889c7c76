// Package kubernetes tests kurma-cri below Kubernetes' own programs: a control plane, and nodes that are namespaces.
// All runs in namespaces of the tests' own, and no address outside them is asked. The variable KUBERNETES names the
// program that is all of Kubernetes' programs.
//
// The test program is executed for each part of this:
//
//	go test ─► outside: makes and removes folders, cgroups ─► cluster: the tests; PID 1 of its namespaces
//	                                                           ├─ etcd, kube-apiserver, … kubectl
//	                                                           └─ node (one each) ─► agent: PID 1 of the node
//	                                                                                  └─ kubelet, kurma-cri, kube-proxy
package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// stageVariable says which part of the tests the process is.
	stageVariable = "KURMA_KUBERNETES_STAGE"
	// cgroupVariable has the name of the cgroup of all nodes.
	cgroupVariable = "KURMA_KUBERNETES_CGROUP"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(stageVariable) {
	case "":
		os.Exit(outside())
	case "cluster":
		if err = prepareCluster(); err == nil {
			os.Exit(m.Run())
		}
	case "node":
		err = enterNode()
	case "agent":
		err = serveNode()
	}
	fmt.Fprintln(os.Stderr, "set up namespaces:", err)
	os.Exit(1)
}

// outside executes the tests in namespaces of their own, and removes what they have made on the machine. All processes
// end with the first one of their PID namespace, all mounts and interfaces with the last one of theirs.
func outside() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests must run as root")
		return 1
	}
	dir, err := os.MkdirTemp("", "kurma-kubernetes-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	group := fmt.Sprintf("kurma-kubernetes-%d", os.Getpid())
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stageVariable+"=cluster", cgroupVariable+"="+group, "TMPDIR="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: namespaces, Pdeathsig: unix.SIGKILL}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT)
	if err = cmd.Start(); err == nil {
		go func() {
			<-stop
			_ = cmd.Process.Kill() // as PID 1 it would ignore other signals
		}()
		err = cmd.Wait()
	}
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = max(exit.ExitCode(), 1)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in namespaces:", err)
		code = 1
	}
	if err := errors.Join(removeCgroups(group), os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, "the tests have left something:", err)
		code = 1
	}
	return code
}

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID

// prepareCluster makes the network that connects the nodes with the control plane.
func prepareCluster() error {
	return errors.Join(
		privateMounts(),
		ip("link", "set", "lo", "up"),
		ip("link", "add", "nodes", "type", "bridge"),
		ip("address", "add", controlAddress+"/24", "dev", "nodes"),
		ip("link", "set", "nodes", "up"),
		os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0), // from node to node
	)
}

// privateMounts keeps mounts from other namespaces, and mounts the /proc of the process's own.
func privateMounts() error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""),
	)
}

// ip runs ip(8).
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w: %s", args, err, out)
	}
	return nil
}
