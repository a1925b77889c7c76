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
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

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
	leaseAgain(ctx, lib, leases)
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
	list   *libcni.NetworkConfigList // by which the pod was connected
	pod    *libcni.RuntimeConf
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
		}, own.list, runtimeOf(a)})
	}
	return all, nil
}

// leaseAgain has a daemon that has just started lease the addresses of the pods again: the daemon before it kept the
// leases in memory. A server gives the client of a lease its address again. The daemon goes on asking a server
// that does not answer in time, so that the network's next pods do not depend on it; errors are in the log only.
func leaseAgain(ctx context.Context, lib *libcni.CNIConfig, leases []lease) {
	ctx, cancel := context.WithTimeoutCause(ctx, leasePatience, fmt.Errorf("not done within %v", leasePatience))
	defer cancel()
	var all sync.WaitGroup
	for _, l := range leases {
		if !exists(l.args.NetNS) {
			continue // the pod is gone, or the path was valid during its ADD only, as under kurma-cri
		}
		all.Go(func() {
			if err := l.take(ctx, lib); err != nil {
				fmt.Fprintf(os.Stderr, "lease address of pod %s again: %v\n", l.args.ContainerID, err)
			}
		})
	}
	all.Wait()
}

// take leases the pod's address again. A server that has lost its leases may give another address, which the pod does
// not use: that one goes back.
func (l lease) take(ctx context.Context, lib *libcni.CNIConfig) error {
	program := filepath.Join(l.args.Path, "dhcp")
	got, err := invoke.ExecPluginWithResult(ctx, program, l.config, l.args, &executor{})
	if err != nil {
		return err
	}
	has, err := lib.GetNetworkListCachedResult(l.list, l.pod)
	if err != nil || has == nil {
		return err
	}
	given, used := addresses(got), addresses(has)
	if len(used) == 0 || !slices.ContainsFunc(given, func(ip string) bool { return !slices.Contains(used, ip) }) {
		return nil
	}
	back := *l.args
	back.Command = "DEL"
	return errors.Join(fmt.Errorf("the server gives %s, so nothing renews the lease of %s", given, used),
		invoke.ExecPluginWithoutResult(ctx, program, l.config, &back, &executor{}))
}

// addresses returns the addresses of a result, without their networks; none of a version that libcni does not know.
func addresses(r types.Result) (all []string) {
	if result, err := current.NewResultFromResult(r); err == nil {
		for _, ip := range result.IPs {
			all = append(all, ip.Address.IP.String())
		}
	}
	return all
}
