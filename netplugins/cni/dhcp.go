package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"kurma.io/stager/netplugins/plugin"
)

const (
	// dhcpSocket is where CNI's dhcp plugin expects its daemon.
	dhcpSocket = "/run/cni/dhcp.sock"
	// dhcpLog is what the daemon says: of leases that it cannot renew or give back.
	dhcpLog = plugin.StateDir + "/dhcp.log"
	// dhcpPatience is how long the daemon may take to listen.
	dhcpPatience = 10 * time.Second
	// leasePatience is how long setup waits for the leases of pods that are connected.
	leasePatience = 10 * time.Second
)

// launchDHCP starts the daemon in its own session: it outlives setup.
func (c *cni) launchDHCP() (*exec.Cmd, error) {
	if err := os.MkdirAll(filepath.Dir(dhcpSocket), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(dhcpSocket); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
		return nil, err
	}
	log, err := os.Create(dhcpLog)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.path[0], "dhcp"), "daemon")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, cmd.Start()
}

// startDHCP starts the daemon of CNI's dhcp plugin, which keeps leases, if the network or one of its pods uses the
// plugin, and the daemon does not answer.
func (c *cni) startDHCP(ctx context.Context, lib *libcni.CNIConfig, n *network) error {
	leases, err := c.leases(lib, n)
	if err != nil {
		return err
	}
	if !n.uses("dhcp") && len(leases) == 0 || dhcpAnswers() {
		return nil
	}
	if err := c.awaitDHCP(ctx); err != nil {
		return fmt.Errorf("start dhcp daemon: %w", err)
	}
	leaseAgain(ctx, leases)
	return nil
}

// awaitDHCP starts the daemon and waits until it listens.
func (c *cni) awaitDHCP(ctx context.Context) error {
	cmd, err := c.launchDHCP()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, dhcpPatience)
	defer cancel()
	for !dhcpAnswers() {
		select {
		case err := <-ended:
			return fmt.Errorf("the daemon has ended: %w", err)
		case <-ctx.Done():
			return errors.Join(errors.New("the daemon does not listen"), cmd.Process.Kill())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func dhcpAnswers() bool {
	conn, err := net.Dial("unix", dhcpSocket)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// lease is the call of the dhcp plugin by which the daemon keeps the lease of a pod.
type lease struct {
	config []byte
	args   *invoke.Args
}

// leases returns the leases of the network's pods, by the configurations with which they were connected.
func (c *cni) leases(lib *libcni.CNIConfig, n *network) ([]lease, error) {
	connected, err := attachments(lib, n)
	if err != nil {
		return nil, err
	}
	var all []lease
	for _, a := range connected {
		own, err := c.attachedNetwork(a)
		if err != nil {
			return nil, err
		}
		i := slices.Index(own.ipam, "dhcp")
		if i < 0 {
			continue
		}
		keys := map[string]any{"name": own.list.Name, "cniVersion": own.list.CNIVersion} // as libcni adds them
		config, err := libcni.InjectConf(own.list.Plugins[i], keys)
		if err != nil {
			return nil, err
		}
		all = append(all, lease{config.Bytes, &invoke.Args{
			Command: "ADD", ContainerID: a.ContainerID, NetNS: a.NetNS, IfName: a.IfName, Path: c.path[0],
		}})
	}
	return all, nil
}

// leaseAgain has a daemon that has just started lease the addresses of the pods again: the daemon before it kept the
// leases in memory. A server gives the client of a lease its address again. The daemon goes on asking a server
// that does not answer in time, so that the network's next pods do not depend on it; errors are in the log only.
func leaseAgain(ctx context.Context, leases []lease) {
	ctx, cancel := context.WithTimeoutCause(ctx, leasePatience, fmt.Errorf("not done within %v", leasePatience))
	defer cancel()
	var all sync.WaitGroup
	for _, l := range leases {
		if !exists(l.args.NetNS) {
			continue // the pod is gone, or the path was valid during its ADD only, as under kurma-cri
		}
		all.Go(func() {
			program := filepath.Join(l.args.Path, "dhcp")
			if err := invoke.ExecPluginWithoutResult(ctx, program, l.config, l.args, &executor{}); err != nil {
				fmt.Fprintf(os.Stderr, "lease address of pod %s again: %v\n", l.args.ContainerID, err)
			}
		})
	}
	all.Wait()
}
