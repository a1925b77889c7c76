// Package records keeps what the server knows of sandboxes and containers on disk: one file of JSON each, replaced in
// one step, so that a server that was killed finds everything again.
//
//	DIR/sandboxes/ID/sandbox.json       beside it the sandbox's pinned namespaces and files, see package sandboxes
//	DIR/containers/ID/container.json    removed.json while the container is removed
//	DIR/containers/ID/pod.json          what only its start needs
package records

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"
)

var (
	// ErrNotFound says that there is no such sandbox or container.
	ErrNotFound = errors.New("not found")
	// ErrDamaged says that a record cannot be read, as a power loss may leave it.
	ErrDamaged = errors.New("record is damaged")
)

// Phase is where a sandbox is in its life: Making, Ready, Stopped; or Making, Failed, and Stopped if kubelet stops it.
type Phase string

// The phases.
const (
	Making  Phase = "making" // a server that was killed leaves it; the next one removes the sandbox
	Ready   Phase = "ready"
	Stopped Phase = "stopped"
	Failed  Phase = "failed" // it was not finished, and what it has could not be removed yet
)

// Sandbox is what the server knows of a sandbox.
type Sandbox struct {
	ID          string            `json:"id"`
	Phase       Phase             `json:"phase"`
	Created     time.Time         `json:"created"`
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Namespace   string            `json:"namespace"`
	Attempt     uint32            `json:"attempt"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Handler     string            `json:"handler,omitempty"`

	Hostname     string            `json:"hostname"`
	LogDirectory string            `json:"logDirectory,omitempty"`
	ResolvConf   string            `json:"resolvConf"` // the file's text
	Sysctls      map[string]string `json:"sysctls,omitempty"`
	Cgroup       string            `json:"cgroup"` // a path below each hierarchy's root

	// The modes are numbers of the CRI's NamespaceMode, as the caller has asked for them.
	NetworkMode int32 `json:"networkMode"`
	PIDMode     int32 `json:"pidMode"`
	IPCMode     int32 `json:"ipcMode"`

	HostNetwork bool   `json:"hostNetwork,omitempty"`
	HostIPC     bool   `json:"hostIPC,omitempty"`
	Users       *Users `json:"users,omitempty"` // of its own user namespace, nil for the host's

	Ports []networks.PortMapping `json:"ports,omitempty"`
	IPs   []string               `json:"ips,omitempty"` // the first is the primary one

	// NetworkConfig is the CNI configuration list by which the sandbox was connected; nil for none.
	NetworkConfig json.RawMessage `json:"networkConfig,omitempty"`
	// Attachments are the Kurma networks to which the sandbox was connected instead; nil for none.
	Attachments []networks.Attachment `json:"attachments,omitempty"`
}

// Users are the numbers of a user namespace: its users and groups 0 to Size-1 are HostID, HostID+1 and so on outside.
type Users struct {
	HostID uint32 `json:"hostID"`
	Size   uint32 `json:"size"`
}

// Container is what the server knows of a container. Where the container is in its life says its pod.
type Container struct {
	ID          string            `json:"id"`
	SandboxID   string            `json:"sandboxID"`
	Created     time.Time         `json:"created"`
	Name        string            `json:"name"`
	Attempt     uint32            `json:"attempt"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`

	Image     string `json:"image"` // as the caller has named it
	ImageSpec string `json:"imageSpec,omitempty"`
	ImageID   string `json:"imageID"`
	// ImageDigest is HOST/NAME@DIGEST of a pulled image, "" for another.
	ImageDigest string `json:"imageDigest,omitempty"`

	LogPath string `json:"logPath,omitempty"` // on the host

	App        string `json:"app"` // the name of the pod's app
	StopSignal int    `json:"stopSignal"`
	TTY        bool   `json:"tty,omitempty"`

	// Mounts, Resources and User are parts of the status, in the CRI's JSON.
	Mounts      []json.RawMessage `json:"mounts,omitempty"`
	Resources   json.RawMessage   `json:"resources,omitempty"`
	User        json.RawMessage   `json:"user,omitempty"`
	HostVolumes HostVolumes       `json:"hostVolumes,omitzero"`
	// MountedImages are the IDs of the images that are volumes of the container.
	MountedImages []string `json:"mountedImages,omitempty"`
	// PIDs says in which PID namespace the stager and the app are: PodPIDs for the sandbox's, or the ID of a container for
	// that of its app; "" for the one that the manifest says.
	PIDs string `json:"pids,omitempty"`
	// Limits are written into the cgroups when the container has started.
	Limits Limits `json:"limits,omitzero"`

	// PodUUID is the container's pod; "" until the container is started.
	PodUUID string    `json:"podUUID,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// StartError is why the container did not start, in one line, and Failed when that was.
	StartError string    `json:"startError,omitempty"`
	Failed     time.Time `json:"failed,omitzero"`
}

// StartTried reports whether the container has been started or could not be: it is not started again.
func (c Container) StartTried() bool { return c.PodUUID != "" || c.StartError != "" }

// PodPIDs is a value of Container.PIDs.
const PodPIDs = "pod"

// Limits are limits of a container's cgroup for which the stager has no isolators.
type Limits struct {
	CPUs    string            `json:"cpus,omitempty"`
	Mems    string            `json:"mems,omitempty"`
	Unified map[string]string `json:"unified,omitempty"`
	Memory  []Setting         `json:"memory,omitempty"` // swap and huge pages
	Quota   []Setting         `json:"quota,omitempty"`  // of CPU time, in a period that the stager has not
}

// Setting is a text for a file of a cgroup.
type Setting struct{ File, Text string }

// Settings returns the limits as texts for files, in the order in which they can be written.
func (l Limits) Settings() []Setting {
	var all []Setting
	if l.CPUs != "" {
		all = append(all, Setting{"cpuset.cpus", l.CPUs})
	}
	if l.Mems != "" {
		all = append(all, Setting{"cpuset.mems", l.Mems})
	}
	for key, value := range l.Unified {
		all = append(all, Setting{key, value})
	}
	return slices.Concat(all, l.Memory, l.Quota)
}

// NewID returns a new ID of a sandbox or container.
func NewID() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	return hex.EncodeToString(random[:])
}

// Store is the folder of the records. Its methods may be called at the same time, but for one ID only one of Write and
// Remove.
type Store struct {
	dir    string
	warned sync.Map // the IDs of damaged records that have been logged
}

// Open makes the store's folders if they are missing.
func Open(dir string) (*Store, error) {
	for _, kind := range []string{sandboxes, containers} {
		if err := os.MkdirAll(filepath.Join(dir, kind), 0o700); err != nil {
			return nil, fmt.Errorf("open store of records: %w", err)
		}
	}
	return &Store{dir: dir}, nil
}

const (
	sandboxes  = "sandboxes"
	containers = "containers"
)

// SandboxDir is the folder of a sandbox, which its record is in.
func (s *Store) SandboxDir(id string) string { return filepath.Join(s.dir, sandboxes, id) }

func (s *Store) containerDir(id string) string { return filepath.Join(s.dir, containers, id) }

// Sandbox returns the record of a sandbox, ErrNotFound or ErrDamaged.
func (s *Store) Sandbox(id string) (r Sandbox, err error) {
	return r, read(s.SandboxDir(id), "sandbox", id, &r)
}

// Container returns the record of a container, ErrNotFound or ErrDamaged.
func (s *Store) Container(id string) (r Container, err error) {
	return r, read(s.containerDir(id), "container", id, &r)
}

func read(dir, kind, id string, into any) error {
	err := fs.ErrNotExist
	if isID(id) {
		err = jsonfile.Read(filepath.Join(dir, kind+".json"), into)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %q: %w", kind, id, ErrNotFound)
	}
	if jsonfile.IsDamage(err) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, id, err)
	}
	return nil
}

// isID reports whether a text is an ID, so that it names no other folder.
func isID(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// WriteSandbox writes the record of a sandbox. It makes a missing folder.
func (s *Store) WriteSandbox(r Sandbox) error { return write(s.SandboxDir(r.ID), "sandbox", r) }

// WriteContainer writes the record of a container. It makes a missing folder.
func (s *Store) WriteContainer(r Container) error {
	return write(s.containerDir(r.ID), "container", r)
}

func write(dir, kind string, record any) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write record of %s: %w", kind, err)
	}
	if err := jsonfile.Write(filepath.Join(dir, kind+".json"), record); err != nil {
		return fmt.Errorf("write record of %s: %w", kind, err)
	}
	return nil
}

// Sandboxes returns all sandboxes, the latest first, without those whose record is damaged.
func (s *Store) Sandboxes() ([]Sandbox, error) {
	all, err := list(s, sandboxes, s.Sandbox)
	slices.SortFunc(all, func(a, b Sandbox) int { return b.Created.Compare(a.Created) })
	return all, err
}

// Containers returns all containers, the latest first, without those whose record is damaged.
func (s *Store) Containers() ([]Container, error) {
	all, err := list(s, containers, s.Container)
	slices.SortFunc(all, func(a, b Container) int { return b.Created.Compare(a.Created) })
	return all, err
}

// list reads the records of a folder, without those that are being removed. One that is damaged must not hide the
// others: it is logged once.
func list[T any](s *Store, kind string, read func(id string) (T, error)) ([]T, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, kind))
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var all []T
	for _, e := range entries {
		r, err := read(e.Name())
		if err == nil {
			all = append(all, r)
			continue
		}
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if !errors.Is(err, ErrDamaged) { // nobody may take it for removed
			return nil, fmt.Errorf("list records: %w", err)
		}
		if _, before := s.warned.LoadOrStore(e.Name(), true); !before {
			slog.Warn("record is left out", "error", err)
		}
	}
	return all, nil
}

// Damaged returns the IDs of the sandboxes and containers whose records are damaged.
func (s *Store) Damaged() (damagedSandboxes, damagedContainers []string, err error) {
	damagedSandboxes, err = unreadable(filepath.Join(s.dir, sandboxes), s.Sandbox)
	damagedContainers, more := unreadable(filepath.Join(s.dir, containers), s.Container)
	return damagedSandboxes, damagedContainers, errors.Join(err, more)
}

func unreadable[T any](dir string, read func(id string) (T, error)) (ids []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if _, failure := read(e.Name()); errors.Is(failure, ErrDamaged) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}
