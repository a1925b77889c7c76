package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/signing"
	"kurma.io/stager/spec"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readSeccomp reads a profile that is a file, else it returns nil.
func readSeccomp(p *runtimeapi.SecurityProfile) ([]byte, error) {
	if p.GetProfileType() != runtimeapi.SecurityProfile_Localhost {
		return nil, nil
	}
	text, err := os.ReadFile(p.GetLocalhostRef())
	if err != nil {
		return nil, fmt.Errorf("read seccomp profile: %w", err)
	}
	return text, nil
}

// facts finds out what translate needs to know.
func (s *Server) facts(
	sandbox records.Sandbox, c *runtimeapi.ContainerConfig, sources map[string]string,
) (translate.Facts, error) {
	support := machine.Support()
	f := translate.Facts{
		Files:        sandboxes.Files(s.records.SandboxDir(sandbox.ID), sandbox),
		Sources:      sources,
		Users:        sandbox.Users,
		Capabilities: support.Capabilities, Default: spec.DefaultCapabilities(),
		SELinux: support.SELinux,
	}
	layers, err := s.imageOf(c.GetImage().GetImage())
	if err != nil {
		return f, err
	}
	if f.Image, err = describeApp(layers[0]); err != nil {
		return f, err
	}
	hostname := translate.Variable{Name: "HOSTNAME", Value: sandbox.Hostname} // as other runtimes have it
	f.Image.Env = slices.Insert(f.Image.Env, 0, hostname)
	f.Account = accountsOf(layers)
	f.Resolve = func(target string, mounted []string) (string, error) {
		own := append(spec.SystemFolders(), "/etc/resolv.conf") // for which the stager removes a link of the image
		return images.Resolve(layers, target, append(own, mounted...))
	}
	group, err := cgroups.Open(sandbox.Cgroup)
	if err != nil {
		return f, err
	}
	f.Cgroups = cgroupsOf(group)
	if f.LowestOOMScoreAdj, err = lowestScore(group, support.MinOOMScoreAdj); err != nil {
		return f, err
	}
	if f.Seccomp, err = readSeccomp(c.GetLinux().GetSecurityContext().GetSeccomp()); err != nil {
		return f, err
	}
	mounts, err := sandboxes.ReadHostMounts()
	if err != nil {
		return f, err
	}
	f.MountsBelow, f.SharedMount = mounts.Below, mounts.Shared
	if c.GetLogPath() != "" && sandbox.LogDirectory != "" {
		f.LogPath, err = prepareLog(sandbox.LogDirectory, c.GetLogPath())
	}
	return f, err
}

// prepareLog makes the folder of a log, and returns the log's path without symbolic links.
func prepareLog(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make folder of log: %w", err)
	}
	real, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(real, filepath.Base(path)), err
}

// resolveSources finds the paths of mounts and devices without symbolic links, as the CRI wants it, until ctx ends. A
// path may be on a file system whose server does not answer. So the caller holds no lock, which the end of other
// containers would wait for. It makes no folder at the paths that are needed.
func (s *Server) resolveSources(
	ctx context.Context, c *runtimeapi.ContainerConfig, needs translate.OnHost,
) (map[string]string, error) {
	sources := make(map[string]string)
	for path, node := range needs {
		find := func(path string) (string, error) { return findNode(path, node) }
		if err := s.resolve(ctx, path, find, sources); err != nil {
			return nil, err
		}
	}
	for _, m := range c.GetMounts() {
		if _, found := sources[m.GetHostPath()]; found || m.GetImage() != nil {
			continue
		}
		if err := s.resolve(ctx, m.GetHostPath(), findMount, sources); err != nil {
			return nil, err
		}
	}
	for _, d := range c.GetDevices() {
		if _, found := sources[d.GetHostPath()]; found {
			continue
		}
		if err := s.resolve(ctx, d.GetHostPath(), filepath.EvalSymlinks, sources); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// findMount finds a mount's path. One that is missing is made a folder, as other runtimes do.
func findMount(path string) (string, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", err
		}
	}
	return filepath.EvalSymlinks(path)
}

// resolve has find find a path, and adds what it has found to sources. It finds a path once at a time: a look-up that
// hangs takes a thread, which kubelet's next tries must not take as well.
func (s *Server) resolve(
	ctx context.Context, path string, find func(string) (string, error), sources map[string]string,
) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%w: host path %q is not absolute", errInvalid, path)
	}
	release, err := s.locks.take(ctx, path)
	if err != nil {
		return fmt.Errorf("find host path: %w", err)
	}
	var real string
	found := make(chan error, 1)
	go func() {
		defer release()
		var err error
		real, err = find(path)
		found <- err
	}()
	select {
	case err = <-found:
		sources[path] = real
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("find host path %s: %w", path, err)
	}
	return nil
}

// imageOf returns a container's image and all that the image depends on, the top one first.
func (s *Server) imageOf(ref string) ([]*images.Image, error) {
	found, err := s.findImage(ref)
	if err == nil && found == nil {
		err = fmt.Errorf("image %q: %w", ref, images.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	image, err := s.images.Get(found.ID)
	if err != nil {
		return nil, err
	}
	return s.images.Catalog(signing.KeyRing{}, nil).Layers(image)
}

// describeApp returns what an image says of its app.
func describeApp(image *images.Image) (translate.Image, error) {
	t := translate.Image{
		ID: image.ID, User: "0", Group: "0", StopSignal: image.Manifest.Annotations[names.StopSignalAnnotation],
	}
	_, t.HealthCheck = image.Manifest.Annotations[names.HealthCommandAnnotation]
	document, err := manifest.DecodeImage(image.Manifest.Raw)
	if err != nil || document.App == nil {
		return t, err
	}
	app := document.App
	t.User, t.Group, t.Groups, t.WorkingDir = app.User, app.Group, app.SupplementaryGIDs, app.WorkingDirectory
	for _, e := range app.Environment {
		t.Env = append(t.Env, translate.Variable(e))
	}
	if text, found := image.Manifest.Annotations[names.EnvironmentAnnotation]; found {
		var others []string
		if err := json.Unmarshal([]byte(text), &others); err != nil {
			return t, fmt.Errorf("annotation %s of image %s: %w", names.EnvironmentAnnotation, image.ID, err)
		}
		for _, v := range others {
			name, value, _ := strings.Cut(v, "=")
			t.Env = append(t.Env, translate.Variable{Name: name, Value: value})
		}
	}
	t.Entrypoint = app.Exec
	text, converted := image.Manifest.Annotations[names.EntrypointAnnotation]
	if converted {
		t.Entrypoint = nil
		command := image.Manifest.Annotations[names.CommandAnnotation]
		err = errors.Join(json.Unmarshal([]byte(text), &t.Entrypoint), json.Unmarshal([]byte(command), &t.Command))
	}
	return t, err
}

// accountsOf looks users up in an image's files.
func accountsOf(layers []*images.Image) func(string) (translate.Account, bool, error) {
	return func(user string) (translate.Account, bool, error) {
		accounts, err := images.AccountsOf(layers)
		if err != nil {
			return translate.Account{}, false, err
		}
		account, ok := accounts.Find(user)
		return translate.Account{Group: account.Group, Groups: account.Groups}, ok, nil
	}
}
