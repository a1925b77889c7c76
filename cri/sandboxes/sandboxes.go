// Package sandboxes makes sandboxes and removes them: namespaces and a cgroup without a process, pinned so that they
// outlive the server. In a sandbox's folder are
//
//	net, ipc, uts, user           the namespaces that are not the host's, each a bind mount; without any the host's uts
//	pid, holder                   that of PIDs, and its process, see pids.go
//	connections.json              networks.Record of a sandbox that Kurma's networks connect
//	result.json                   the last result of a CNI plugin; libcni writes results/ as well
//	disconnect-failed             since when plugins have failed to disconnect the sandbox
//	shm                           a tmpfs, the containers' /dev/shm, unless the IPC namespace is the host's
//	resolv.conf, hosts, hostname  for the containers' /etc
package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/networks"

	"golang.org/x/sys/unix"
)

// Maker makes sandboxes. Its methods may be called at the same time for different sandboxes.
type Maker struct {
	CNI   CNI
	Kurma Kurma
}

// Attach decides how a sandbox with a network of its own is connected, and sets the record's NetworkConfig or
// Attachments. An error says that the network is not ready, or cannot do what the sandbox asks for.
func (m *Maker) Attach(r *records.Sandbox) (err error) {
	if m.Kurma.Folder != "" {
		r.Attachments, err = m.Kurma.attach(*r)
		return err
	}
	r.NetworkConfig, err = m.CNI.config()
	return err
}

// Ready returns why no sandbox can be connected now, or nil: Attach would fail, or a plugin of CNI says so.
func (m *Maker) Ready(ctx context.Context) error {
	if err := m.Attach(&records.Sandbox{ID: records.NewID()}); err != nil || m.Kurma.Folder != "" {
		return err
	}
	return m.CNI.status(ctx)
}

// Make makes the sandbox of a record in its folder, which exists, and sets the record's addresses. A sandbox with a
// network of its own has been attached. After an error Stop and Remove undo what was made.
func (m *Maker) Make(ctx context.Context, dir string, r *records.Sandbox) error {
	group, err := cgroups.Open(r.Cgroup)
	if err != nil {
		return err
	}
	if err := errors.Join(group.Make(), writeFiles(dir, *r)); err != nil {
		return err
	}
	if err := pinNamespaces(dir, *r); err != nil {
		return err
	}
	if !r.HostIPC {
		if err := mountShm(filepath.Join(dir, shmDir)); err != nil {
			return err
		}
	}
	if r.HostNetwork {
		return nil
	}
	if r.Attachments != nil {
		return m.Kurma.connect(ctx, dir, r)
	}
	return m.CNI.connect(ctx, dir, r)
}

const (
	netPin  = "net"
	shmDir  = "shm"
	shmSize = "size=64m,mode=1777" // as other runtimes have it
)

func mountShm(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return fmt.Errorf("make /dev/shm of sandbox: %w", err)
	}
	if err := unix.Mount("shm", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, shmSize); err != nil {
		return fmt.Errorf("make /dev/shm of sandbox: %w", err)
	}
	return nil
}

// Files returns the files and folders of the host that every container of the sandbox has, by their paths in the
// container.
func Files(dir string, r records.Sandbox) map[string]string {
	files := map[string]string{
		"/etc/resolv.conf": filepath.Join(dir, "resolv.conf"),
		"/etc/hostname":    filepath.Join(dir, "hostname"),
		"/etc/hosts":       filepath.Join(dir, "hosts"),
		"/dev/shm":         filepath.Join(dir, shmDir),
	}
	if r.HostIPC {
		files["/dev/shm"] = "/dev/shm"
	}
	return files
}

func writeFiles(dir string, r records.Sandbox) error {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	for name, text := range map[string]string{"resolv.conf": r.ResolvConf, "hostname": r.Hostname + "\n", "hosts": hosts} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write file of sandbox: %w", err)
		}
	}
	return nil
}

// Stop disconnects a sandbox from its network and releases its namespaces, in which no container may run, and its
// /dev/shm. After an error it may be repeated: the network namespace stays until every plugin has done its work in it.
// A plugin that is gone for good holds up the sandbox for disconnectPatience. Then Stop logs the plugins' errors, which
// say what they keep, and succeeds.
func (m *Maker) Stop(ctx context.Context, dir string, r records.Sandbox) error {
	// First what needs no plugin. shm's files are memory of the pod, and may be secrets.
	errs := []error{releasePIDs(dir), unmount(filepath.Join(dir, shmDir))}
	connected := errors.Join(m.Kurma.disconnect(ctx, dir, r), m.CNI.disconnect(ctx, dir, r))
	if connected != nil {
		late, err := failsFor(dir, disconnectPatience)
		if late {
			slog.Error("sandbox ends although its network's plugins keep resources for it", "sandbox", r.ID, "name", r.Name,
				"error", strings.ReplaceAll(connected.Error(), "\n", "; "))
			connected = nil
		}
		errs = append(errs, err, connected)
	}
	for _, n := range kinds() {
		if n.flag != unix.CLONE_NEWNET || connected == nil {
			errs = append(errs, unmount(filepath.Join(dir, n.name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}

const (
	// disconnectPatience is how long Stop fails for a sandbox that its network's plugins do not disconnect. kubelet
	// tries again in less than a minute, and the pod is terminating until then.
	disconnectPatience = 10 * time.Minute
	// failedFile is made in a sandbox's folder when its plugins fail to disconnect it for the first time.
	failedFile = "disconnect-failed"
)

// failsFor notes that a sandbox could not be disconnected, and reports whether that has been so for as long.
func failsFor(dir string, patience time.Duration) (bool, error) {
	path := filepath.Join(dir, failedFile)
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	return err == nil && time.Since(info.ModTime()) >= patience, err
}

// Remove removes the cgroup of a sandbox that was stopped. It may be repeated.
func (m *Maker) Remove(r records.Sandbox) error {
	if r.Cgroup == "" {
		return nil
	}
	group, err := cgroups.Open(r.Cgroup)
	if err == nil {
		err = group.Remove()
	}
	if err != nil {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// FindCgroup returns the path of the cgroup with that name below a hierarchy's root, "" if there is none.
func FindCgroup(name string) (found string, err error) {
	root, err := cgroups.Open(".")
	if err != nil {
		return "", err
	}
	for _, h := range root.Hierarchies {
		_ = filepath.WalkDir(h.Mount, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == name {
				found, _ = filepath.Rel(h.Mount, path) // below it
				return fs.SkipAll
			}
			return nil // a group that has just gone is not the one
		})
		if found != "" {
			break
		}
	}
	return found, nil
}

// IsAlive reports whether a sandbox that was made has its namespaces: not after Stop or a restart of the machine.
// A namespace that cannot be looked at counts as there.
func IsAlive(dir string, r records.Sandbox) bool {
	for _, n := range pinned(r) {
		if pinned, err := networks.IsPinned(filepath.Join(dir, n.name)); err == nil && !pinned {
			return false
		}
	}
	return true
}
