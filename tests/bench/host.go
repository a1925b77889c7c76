package main

import (
	"crypto/sha512"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

//go:embed apps/*.c preload/*.c
var sources embed.FS

// layerCount is the number of layers under each app's root.
const layerCount = 5

// A host is the bench's ground: a tmpfs with the layers and all files that the
// contestants make, and a network namespace that is ready to be joined.
type host struct {
	dir    string
	layers []string // top first
	netns  string   // a file to join it by
	nextID int
}

// workDir is where a bench with that PID keeps its files.
func workDir(pid int) string { return filepath.Join(os.TempDir(), fmt.Sprintf("stager-bench-%d", pid)) }

// newHost mounts the tmpfs, and version 2 of the cgroups in the place of the machine's. The caller closes the host.
func newHost() (*host, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make the mounts private: %w", err)
	}
	if err := mountPlainCgroup2(); err != nil {
		return nil, err
	}
	dir := workDir(os.Getpid())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	h := &host{dir: dir}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755")
	for _, step := range []func() error{h.makeLayers, h.makeNetwork} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the host: %w", err), h.close())
	}
	return h, nil
}

func (h *host) close() error {
	if err := unix.Unmount(h.dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", h.dir, err)
	}
	return os.Remove(h.dir)
}

// makeLayers makes five layers; the lowest has the programs, and each of the
// others a file that hides the same file below it.
func (h *host) makeLayers() error {
	for i := range layerCount {
		sum := sha512.Sum512([]byte{byte(i)})
		layer := filepath.Join(h.dir, "layers", fmt.Sprintf("sha512-%x", sum))
		for _, dir := range []string{"bin", "etc", "proc", "sys", "dev", "tmp"} {
			if err := os.MkdirAll(filepath.Join(layer, dir), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(layer, "etc/layer"), fmt.Appendln(nil, i), 0o644); err != nil {
			return err
		}
		h.layers = append(h.layers, layer)
	}
	for _, program := range []string{"pause", "stream", "true", "writer"} {
		target := filepath.Join(h.layers[layerCount-1], "bin", program)
		if err := h.compile("apps/"+program+".c", target, "-static"); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles an embedded source.
func (h *host) compile(name, target string, flags ...string) error {
	source, err := sources.ReadFile(name)
	if err != nil {
		return err
	}
	file := filepath.Join(h.dir, filepath.Base(name))
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return err
	}
	out, err := exec.Command("gcc", append(flags, "-O2", "-o", target, file)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile %s: %w\n%s", name, err, out)
	}
	return nil
}

// layersByID returns the layers by the names of their folders, their image IDs.
func (h *host) layersByID() map[string]string {
	byID := make(map[string]string)
	for _, layer := range h.layers {
		byID[filepath.Base(layer)] = layer
	}
	return byID
}

// makeNetwork makes the network namespace to join.
func (h *host) makeNetwork() error {
	h.netns = filepath.Join(h.dir, "netns")
	return pinNetns(h.netns)
}

// pinNetns pins a new network namespace to a file.
func pinNetns(file string) error {
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", file, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	return <-done
}

// id returns a name that no earlier call returned.
func (h *host) id() string {
	h.nextID++
	return fmt.Sprintf("bench-%d-%d", os.Getpid(), h.nextID)
}
