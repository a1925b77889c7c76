// Package pods makes a stager's root and namespaces, starts the stager, watches it, and
// removes everything when it has ended.
//
// On disk, below the store's folder (mode 0700, root's):
//
//	UUID/              one pod
//	    lock           locked for as long as the pod's monitor lives, or the process that attends the pod
//	    plan.json      Plan
//	    state.json     State, replaced in one step
//	    stager.log     the stager's stdout and stderr
//	    logs/APP       the apps' logs, mounted in the stager's root while the pod lives
//	    root/          the stager's root, until the pod has exited
//	    volumes/NAME   the pod's empty volumes, also of a pod that has exited
//	    networks.json  networks.Record, of a pod that is connected to networks
//	    netns          its network namespace is mounted here
//	    hosts          the apps' hosts file, of a pod that is connected to networks
//	    held           of a pod that is restarted: locked by the process that keeps the folder, see Hold
//	    shown          of a pod that run shows: locked by the process that shows the logs, see KeepLogs
//	.lock              taken for moments, while a pod is made or dead ones are looked for
//	.events            what happens to the pods, of package events; .events.old is what came before
//
// A folder without a UUID in the usual form as its name is not a pod's, and is not touched.
//
// A pod's monitor is the parent process of its stager. The kernel kills the
// stager with the monitor (PR_SET_PDEATHSIG), so a live pod always has one: if
// the lock is free, the pod is dead: Create may disconnect it, and Collect may delete it.
// An unattended pod (StartUnattended) has no monitor: if its lock is free, it lives as long as its stager.
// All mounts are made in the stager's own mount namespace and vanish with it.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"kurma.io/stager/internal/filelock"
	"kurma.io/stager/launcher/events"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"

	"github.com/google/uuid"
)

var (
	// ErrNotFound says that the store does not have the pod.
	ErrNotFound = errors.New("no such pod")
	// ErrNameTaken says that a live pod has the name.
	ErrNameTaken = errors.New("name already used")
)

const (
	lockFile   = "lock"
	planFile   = "plan.json"
	stateFile  = "state.json"
	logFile    = "stager.log"
	appLogsDir = "logs"
	rootDir    = "root"
	volumesDir = "volumes"
)

// Store is a folder of pods. Cgroup is the control group, a path below each
// hierarchy's root, in which the pods' groups are made.
type Store struct {
	dir, cgroup string
	// Connector connects the pods to the networks of their plans; it must be set where
	// pods with networks are run, stopped or collected.
	Connector *networks.Connector
}

// Open returns the store in a folder, an absolute path. The folder is made when it is needed.
func Open(dir, cgroup string) *Store { return &Store{dir: dir, cgroup: cgroup} }

// Pod is the record of a pod of a store, as it was when it was read: a value, which may be copied. Refresh and
// AwaitEnd read it again.
type Pod struct {
	Dir   string
	Plan  Plan
	State State

	// Damage is why plan or state of a pod in Phase Damaged cannot be read. Plan has the
	// UUID then, and whatever could be read. Only List returns such pods, and Find with its error.
	Damage error
}

// LogPath returns the file of the stager's own output.
func (p *Pod) LogPath() string { return filepath.Join(p.Dir, logFile) }

func (s *Store) podDir(uuid string) string { return filepath.Join(s.dir, uuid) }

// Create makes a pod's folder and takes its lock. If a live pod has the name it returns ErrNameTaken; one that has
// exited or is dead is not an error. Dead pods that share networks or ports with the new pod are disconnected before,
// and keep their logs; one that cannot be is an error if it holds a port or an address that the plan asks for. The pod
// that the new one takes the place of, see Plan.VolumesOf, may be alive: the caller calls CheckFree after its end. The
// caller then calls Run, StartUnattended, Detach, or HandOver of the monitor with the plan's UUID.
func (s *Store) Create(ctx context.Context, plan Plan) (*Keeper, error) {
	k, err := s.create(ctx, plan)
	if err != nil {
		return nil, fmt.Errorf("create pod %q: %w", plan.Name, err)
	}
	return k, nil
}

func (s *Store) create(ctx context.Context, plan Plan) (*Keeper, error) {
	if !isUUID(plan.UUID) {
		return nil, fmt.Errorf("%q is not a UUID", plan.UUID)
	}
	store, all, err := s.makeRoom(ctx, plan)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	// The pod that this one takes the place of may be alive still, see CheckFree.
	others := slices.DeleteFunc(all, func(p *Pod) bool { return p.Plan.UUID == plan.VolumesOf })
	if err := checkFree(plan, others); err != nil {
		return nil, err
	}
	if plan.VolumesOf == "" {
		if err := checkListeners(plan.Ports); err != nil {
			return nil, err
		}
	}
	plan.Cgroup = filepath.Join(s.cgroup, plan.UUID)
	k := &Keeper{
		Pod:       Pod{Dir: s.podDir(plan.UUID), Plan: plan, State: State{Phase: Starting, Created: time.Now().UTC()}},
		connector: s.Connector,
	}
	if err := os.Mkdir(k.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := k.begin(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(k.Dir))
	}
	k.record(events.Event{Action: events.Created, Time: k.State.Created})
	return k, nil
}

// CheckFree returns an error unless the pod that k takes the place of has ended and has released its ports and
// addresses. Create does not look at that pod, nor at the host's sockets, which that pod may have.
func (s *Store) CheckFree(k *Keeper) error {
	store, err := s.lockStore()
	if err != nil {
		return err
	}
	defer store.Close()
	all, err := s.List()
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(all, func(p *Pod) bool { return p.Plan.UUID == k.Plan.UUID })
	if err := checkFree(k.Plan, others); err != nil {
		return err
	}
	return checkListeners(k.Plan.Ports)
}

// checkFree returns an error if one of the pods has the plan's name, or one of its ports or addresses.
func checkFree(plan Plan, all []*Pod) error {
	if uuid, taken := liveNames(all)[plan.Name]; taken {
		return fmt.Errorf("%w by pod %s", ErrNameTaken, uuid)
	}
	if err := checkPorts(plan, all); err != nil {
		return err
	}
	return checkAddresses(plan, all)
}

func (k *Keeper) begin() error {
	lock, err := os.OpenFile(filepath.Join(k.Dir, lockFile), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	k.lock = lock
	if locked, err := filelock.Hold(lock); err != nil || !locked {
		return cmp.Or(err, errors.New("lock is held"))
	}
	if err := jsonfile.Write(filepath.Join(k.Dir, planFile), k.Plan); err != nil {
		return err
	}
	return k.save()
}

// lockStore takes the store's lock, which is held for short times only.
func (s *Store) lockStore() (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make pod store: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(file, lockLimit); err != nil {
		return nil, fmt.Errorf("lock pod store: %w", err)
	}
	return file, nil
}

// ImagesInUse maps the ID of each image of the pods that have not exited to such a pod's name.
func (s *Store) ImagesInUse() (map[string]string, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	inUse := make(map[string]string)
	for _, pod := range all {
		if pod.State.Phase == Exited {
			continue
		}
		inUse[pod.Plan.StagerImage] = pod.Plan.Name
		for _, layer := range pod.Plan.Layers {
			inUse[layer.ID] = pod.Plan.Name
		}
	}
	return inUse, nil
}

// List returns all pods, the oldest first, and damaged pods at the end.
func (s *Store) List() ([]*Pod, error) {
	uuids, err := s.uuids()
	if err != nil {
		return nil, err
	}
	var sound, damaged []*Pod
	for _, uuid := range uuids {
		pod, err := s.read(uuid)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since, or killed while it was made
		case err != nil && !jsonfile.IsDamage(err):
			return nil, fmt.Errorf("read pod %s: %w", uuid, err) // it may be alive
		case err != nil:
			pod.Plan.UUID, pod.State, pod.Damage = uuid, State{Phase: Damaged}, err
			damaged = append(damaged, pod)
		default:
			sound = append(sound, pod)
		}
	}
	slices.SortFunc(sound, func(a, b *Pod) int { return a.State.Created.Compare(b.State.Created) })
	return append(sound, damaged...), nil
}

// LiveNames maps the name of each live pod to its UUID.
func (s *Store) LiveNames() (map[string]string, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	return liveNames(all), nil
}

func liveNames(all []*Pod) map[string]string {
	names := make(map[string]string)
	for _, pod := range all {
		if pod.alive() {
			names[pod.Plan.Name] = pod.Plan.UUID
		}
	}
	return names
}

func (s *Store) uuids() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var uuids []string
	for _, e := range entries {
		if e.IsDir() && isUUID(e.Name()) {
			uuids = append(uuids, e.Name())
		}
	}
	return uuids, nil
}

// isUUID reports whether a name is a UUID as a pod's folder is named: lower
// case, with dashes.
func isUUID(name string) bool {
	id, err := uuid.Parse(name)
	return err == nil && id.String() == name
}

// Find returns the pod that a person means: by its name, else by its UUID or the unique
// start of it, of at least four characters. A live pod overrides those of the same name that have ended; of these
// it returns the latest. A damaged pod is ErrDamaged; it is returned as well, for Remove.
func (s *Store) Find(ref string) (*Pod, error) {
	all, err := s.List()
	if err != nil {
		return nil, err
	}
	named, started := matching(all, ref)
	for _, pod := range named {
		if pod.alive() {
			return pod, nil
		}
	}
	sound := slices.DeleteFunc(slices.Clone(named), func(p *Pod) bool { return p.Damage != nil })
	if len(sound) > 0 {
		return sound[len(sound)-1], nil // List sorts them by their age
	}
	switch found := append(named, started...); {
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %q", ErrNotFound, ref)
	case len(named) == 0 && len(found) > 1:
		return nil, fmt.Errorf("%q is the start of %d pods' UUIDs", ref, len(found))
	case found[0].Damage != nil:
		return found[0], fmt.Errorf("pod %s is %w, rm --force ends and deletes it: %w", found[0].Plan.UUID, ErrDamaged,
			found[0].Damage)
	default:
		return found[0], nil
	}
}

// shortestUUID is how long the start of a UUID is at least: a shorter word is more likely the name of a pod that is
// gone.
const shortestUUID = 4

// matching returns the pods of that name, and the pods whose UUID begins so.
func matching(all []*Pod, ref string) (named, started []*Pod) {
	for _, pod := range all {
		if ref != "" && pod.Plan.Name == ref {
			named = append(named, pod)
		}
		if len(ref) >= shortestUUID && strings.HasPrefix(pod.Plan.UUID, ref) {
			started = append(started, pod)
		}
	}
	return named, started
}
