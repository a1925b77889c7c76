package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"kurma.io/stager/container/machine"
	"kurma.io/stager/cri/cdi"
	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/podplan"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer implements the CRI. It refuses all that can be refused before the container starts.
func (s *Server) CreateContainer(
	ctx context.Context, r *runtimeapi.CreateContainerRequest,
) (*runtimeapi.CreateContainerResponse, error) {
	c := r.GetConfig()
	if c.GetMetadata().GetName() == "" {
		return nil, fmt.Errorf("%w: metadata wants a name", errInvalid)
	}
	c, sources, err := s.onHost(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", r.GetConfig().GetMetadata().GetName(), err)
	}
	leaveSandbox, err := s.locks.take(ctx, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	defer leaveSandbox()
	sandbox, err := s.readySandbox(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := s.checkName(sandbox.ID, c.GetMetadata()); err != nil {
		return nil, err
	}
	s.warnAppArmor(c)
	release, err := s.images.Pin() // the image is not removed until the record says that it is in use
	if err != nil {
		return nil, err
	}
	defer release()
	record, err := s.newContainer(ctx, sandbox, c, sources)
	if err != nil {
		return nil, fmt.Errorf("container %q: %w", c.GetMetadata().GetName(), err)
	}
	s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, record.ID, sandbox.ID))
	return &runtimeapi.CreateContainerResponse{ContainerId: record.ID}, nil
}

// onHost returns the configuration with its devices of CDI, and the sources of its mounts and devices.
func (s *Server) onHost(
	ctx context.Context, c *runtimeapi.ContainerConfig,
) (*runtimeapi.ContainerConfig, map[string]string, error) {
	changes, err := cdi.Find(s.config.CDISpecDirectories, translate.DeviceNames(c))
	if err != nil {
		return nil, nil, err
	}
	c, needs, err := translate.WithDevices(c, changes)
	if err != nil {
		return nil, nil, err
	}
	if err := translate.CheckMounts(c); err != nil {
		return nil, nil, err
	}
	sources, err := s.resolveSources(ctx, c, needs)
	return c, sources, err
}

// checkName returns an error if the sandbox has a container of that name and attempt.
func (s *Server) checkName(sandbox string, m *runtimeapi.ContainerMetadata) error {
	all, err := s.containersOf(sandbox)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Name == m.GetName() && c.Attempt == m.GetAttempt() {
			return fmt.Errorf("container %q, attempt %d, exists already: %s", c.Name, c.Attempt, c.ID)
		}
	}
	return nil
}

// newContainer makes the container, or after an error nothing. Sources are those of resolveSources.
func (s *Server) newContainer(
	ctx context.Context, sandbox records.Sandbox, c *runtimeapi.ContainerConfig, sources map[string]string,
) (records.Container, error) {
	id := records.NewID()
	record, err := s.decide(ctx, id, sandbox, c, sources)
	if err == nil {
		err = s.records.WriteContainer(record)
	}
	if err != nil {
		err = errors.Join(err, sandboxes.Decompose(s.composedDir(id)), s.records.RemoveContainer(id))
	}
	return record, err
}

// decide decides about a container with that ID, mounts what it needs on the host, and keeps its pod.
func (s *Server) decide(
	ctx context.Context, id string, sandbox records.Sandbox, c *runtimeapi.ContainerConfig, sources map[string]string,
) (records.Container, error) {
	facts, err := s.facts(sandbox, c, sources)
	if err != nil {
		return records.Container{}, err
	}
	facts.ComposedDir = s.composedDir(id)
	if facts.Images, err = s.mountImages(ctx, facts.ComposedDir, c.GetMounts()); err != nil {
		return records.Container{}, err
	}
	pod, err := translate.Container(c, facts)
	if err != nil {
		return records.Container{}, err
	}
	if pod.PIDs != "" && pod.PIDs != records.PodPIDs {
		file, err := s.pidsOf(ctx, sandbox, pod.PIDs)
		if err != nil {
			return records.Container{}, err
		}
		_ = file.Close()
	}
	record := recordOf(sandbox, c, facts, pod)
	if record.ImageDigest, err = s.digestOf(record.ImageID); err != nil {
		return records.Container{}, err
	}
	record.ID = id
	if err := sandboxes.Compose(facts.ComposedDir, pod.Composed); err != nil {
		return record, err
	}
	if err := s.validate(ctx, record, pod.Pod); err != nil {
		return record, err
	}
	return record, s.records.WritePod(id, pod.Pod)
}

// digestOf returns HOST/NAME@DIGEST of an image, by the first registry that it was pulled from; "" for none.
func (s *Server) digestOf(id string) (string, error) {
	image, err := s.index.Find(id)
	if err != nil || image == nil || len(image.Digests) == 0 {
		return "", err
	}
	return image.Digests[0], nil
}

// recordOf is the record of a new container, without its ID.
func recordOf(sandbox records.Sandbox, c *runtimeapi.ContainerConfig, facts translate.Facts, pod translate.Pod,
) records.Container {
	record := records.Container{
		SandboxID: sandbox.ID, Created: time.Now(),
		Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(),
		Image: c.GetImage().GetImage(), ImageSpec: c.GetImage().GetUserSpecifiedImage(),
		ImageID: facts.Image.ID, LogPath: facts.LogPath,
		App: pod.App, StopSignal: pod.StopSignal, Limits: pod.Limits, PIDs: pod.PIDs,
		HostVolumes: pod.HostVolumes,
		TTY:         c.GetTty(),
		Resources:   encode(c.GetLinux().GetResources()), User: encode(pod.User),
	}
	for _, m := range c.GetMounts() {
		if m.GetImage() != nil { // another mount, which is refused later, may be at the same path
			image := facts.Images[m.GetContainerPath()]
			m.Image.ImageRef = image.ID // as PullImage has returned it
			record.MountedImages = append(record.MountedImages, image.ID)
		}
		record.Mounts = append(record.Mounts, encode(m))
	}
	return record
}

// warnAppArmor says once that there is no profile behind the runtime's default one: containers that ask for it are
// confined by the stager's other means alone.
func (s *Server) warnAppArmor(c *runtimeapi.ContainerConfig) {
	kind := c.GetLinux().GetSecurityContext().GetApparmor()
	if kind == nil || kind.GetProfileType() != runtimeapi.SecurityProfile_RuntimeDefault || !machine.Support().AppArmor {
		return
	}
	s.appArmor.Do(func() {
		slog.Warn("AppArmor's profile RuntimeDefault confines nothing, as the runtime has none; name one as Localhost",
			"container", c.GetMetadata().GetName())
	})
}

// composedDir is the folder of a container's composed mounts.
func (s *Server) composedDir(id string) string { return filepath.Join(s.config.State, "mounts", id) }

// removeMounts removes the host's mounts of a container that is not started again. Its pod has copies of them, and they
// would keep volumes in use after the container's end.
func (s *Server) removeMounts(id string) {
	if err := sandboxes.Decompose(s.composedDir(id)); err != nil {
		slog.Warn("mounts of container stay until it is removed", "container", id, "error", err)
	}
}

// encode returns a part of a status as JSON; nil for none.
func encode(message proto.Message) json.RawMessage {
	if !message.ProtoReflect().IsValid() {
		return nil
	}
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil // a text that is not UTF-8, which gRPC does not let through
	}
	return text
}

// validate decides about the container's pod as the stager will, and refuses what the stager would change.
func (s *Server) validate(ctx context.Context, r records.Container, pod records.Pod) error {
	d, err := s.openDaemon(pod)
	if err != nil {
		return err
	}
	v, _, err := d.Validate(ctx, podOptions(r, pod, ""))
	if err != nil {
		return err
	}
	changed := slices.IndexFunc(v.Isolators, func(i daemon.ValidatedIsolator) bool {
		set := i.Name == "os/linux/capabilities-retain-set" || i.Name == "os/linux/capabilities-ambient-set"
		return set && i.Fate != "enforced"
	})
	if changed >= 0 {
		return fmt.Errorf("capabilities: %s", v.Isolators[changed].Why)
	}
	return nil
}

// openDaemon opens the launcher's library with the configuration of the pod's stager.
func (s *Server) openDaemon(pod records.Pod) (*daemon.Daemon, error) {
	return daemon.Open(s.config.daemon(pod.StagerConfig), daemon.Options{})
}

func podOptions(r records.Container, pod records.Pod, cgroup string) daemon.PodOptions {
	options := podplan.Options{Name: r.ID, HostVolumes: podplan.HostVolumes(r.HostVolumes)}
	return daemon.PodOptions{
		Manifest: pod.Manifest, File: r.Name + ".json", Options: options, CgroupParent: cgroup,
		ChangingLimits: true, // by kubelet, with a pod's resize
	}
}
