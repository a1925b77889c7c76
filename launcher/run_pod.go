package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/podplan"
)

// asked checks the command line for a pod on this machine.
func (c *cli) asked(o runOptions) (daemon.PodOptions, error) {
	if err := o.net.check("run", c.daemon.Networks()); err != nil {
		return daemon.PodOptions{}, err
	}
	if os.Geteuid() != 0 {
		return daemon.PodOptions{}, errors.New("run: only root can start a pod")
	}
	if o.cgroupParent == ownCgroup && o.detach {
		return daemon.PodOptions{}, usageError{"run: --cgroup-parent own is for a service, which must not use --detach"}
	}
	asked, err := o.pod("run")
	if err != nil {
		return asked, err
	}
	asked.CgroupParent = strings.Trim(o.cgroupParent, "/")
	if asked.InService = o.cgroupParent == ownCgroup; asked.InService {
		if asked.CgroupParent, err = cgroups.EnterService(); err != nil {
			return asked, fmt.Errorf("--cgroup-parent own: %w", err)
		}
	}
	return asked, nil
}

// pod returns the pod that the command line asks for.
func (o *runOptions) pod(command string) (daemon.PodOptions, error) {
	asked := daemon.PodOptions{Image: o.source, Args: o.args, Pull: o.pull, Detached: o.detach || o.interactive()}
	asked.Options = podplan.Options{
		Name: o.name, Hostname: o.hostname, Labels: o.labels, Volumes: o.volumes.named, Mounts: o.volumes.mounts, App: o.app,
		HostNetwork: o.net.host, NoNetwork: o.net.none, Networks: o.net.requests, Publish: o.net.publish,
		NameServers: o.net.nameServers, AddHosts: o.net.hosts,
		Remove: o.remove && !o.interactive(), ExitPolicy: o.exitPolicy, Restart: o.restart,
		GracePeriod: o.gracePeriod,
	}
	switch {
	case o.cgroupParent == ownCgroup:
		asked.Options.DefaultExit = "failure" // the service manager learns of each app that fails
	case !o.detach:
		asked.Options.DefaultExit = "all"
	}
	isManifest, err := isPodManifest(o.source)
	if err != nil || !isManifest {
		return asked, err
	}
	if len(o.args) > 0 {
		return asked, usageError{command + ": arguments after -- are for an image's app, not for a pod manifest"}
	}
	if o.appFlag != "" {
		return asked, usageError{command + ": --" + o.appFlag + " is for an image's app; write it into the pod manifest"}
	}
	asked.Image, asked.File = "", o.source
	if asked.Manifest, err = os.ReadFile(o.source); err != nil {
		return asked, fmt.Errorf("read pod manifest: %w", err)
	}
	return asked, nil
}

// isPodManifest reports whether what `run` is given is the file of a pod manifest: by its suffix, or
// because there is such a file. A file that cannot be a pod manifest is an error: it is probably an image's.
func isPodManifest(source string) (bool, error) {
	if strings.HasSuffix(source, ".json") {
		return true, nil
	}
	info, err := os.Stat(source)
	if err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	file, err := os.Open(source)
	if err != nil {
		return false, fmt.Errorf("read pod manifest: %w", err)
	}
	defer file.Close()
	head, err := io.ReadAll(io.LimitReader(file, 1<<12))
	if err != nil {
		return false, fmt.Errorf("read pod manifest: %w", err)
	}
	if head = bytes.TrimSpace(head); len(head) > 0 && head[0] != '{' {
		return false, fmt.Errorf("%s is not a pod manifest, which is a JSON object; an image in that file is file://%s",
			printable(source), printable(source))
	}
	return true, nil
}
