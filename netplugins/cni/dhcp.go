package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"kurma.io/stager/netplugins/plugin"
)

const (
	// dhcpSocket is where CNI's dhcp plugin expects its daemon.
	dhcpSocket = "/run/cni/dhcp.sock"
	// dhcpLog is what the daemon says: of leases that it cannot renew or give back.
	dhcpLog = plugin.StateDir + "/dhcp.log"
	// dhcpPatience is how long the daemon may take to listen.
	dhcpPatience = 10 * time.Second
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

// startDHCP starts the daemon of CNI's dhcp plugin, which keeps leases, if the network uses the plugin, and the daemon
// does not answer.
func (c *cni) startDHCP(ctx context.Context, n *network) error {
	if !n.uses("dhcp") || dhcpAnswers() {
		return nil
	}
	cmd, err := c.launchDHCP()
	if err != nil {
		return fmt.Errorf("start dhcp daemon: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, dhcpPatience)
	defer cancel()
	for !dhcpAnswers() {
		select {
		case err := <-ended:
			return fmt.Errorf("start dhcp daemon: the daemon has ended: %w", err)
		case <-ctx.Done():
			return errors.Join(errors.New("start dhcp daemon: the daemon does not listen"), cmd.Process.Kill())
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
