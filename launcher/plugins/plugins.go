// Package plugins runs the plugins of networks as containers: each network has a pod of the
// launcher's own stager, with the plugin image's files and the host's namespaces, in which the
// plugin's executables are called by the stager's call-in `run`.
//
// On disk, below the folder of Containers (mode 0700, root's):
//
//	NAME/             one network
//	    lock          locked while the plugin's container is started or stopped, and shared while it is looked up
//	    fetch         locked while the plugin's image is fetched, so that one launcher does it
//	    calls         shared by the plugin's calls; a container that is replaced waits for them
//	    network.json  record: what the container was set up with last
//	    state/        /var/lib/network in the container: the plugin's own, and kept
//	    run/          /run/network in the container: emptied when the machine has been restarted
//	    log           what the plugin has written to stderr
//	pods/             the pods.Store of the containers
//
// A container is kept between the calls of several launchers, so that processes that `setup`
// starts stay. Collect stops the containers of networks that no pod uses, and has plugins delete the networks that have
// left the configuration.
package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"kurma.io/stager/internal/procstat"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/jsonfile"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"

	"golang.org/x/sys/unix"
)

// Containers are the plugin containers of the networks of one configuration. Several processes
// may use the same folder.
type Containers struct {
	// Dir is the folder of the containers.
	Dir string
	// Networks are those of the configuration.
	Networks []networks.Network
	// Cgroup is the parent of the containers' control groups.
	Cgroup string
	// Image returns the image of a plugin by the aci of its network. It trusts the image:
	// the plugin's processes have the powers of the host's root. Until release is called
	// the image cannot be removed.
	Image func(ctx context.Context, aci string) (image *images.Image, release func(), err error)
	// Planner returns what plans a container's pod. It may import the stager's image, until ctx ends.
	Planner func(ctx context.Context) (*podplan.Planner, error)
	// Monitor is the command line of a detached monitor, to which the pod's folder is added.
	Monitor []string
	// Hold is the host's path of a program that waits until it is stopped if its argument is "hold". It is mounted into
	// the container as /opt/network/.hold, and is the main process there. With "" no container starts.
	Hold string
	// Live returns the UUIDs of all pods that may be connected to the networks. It may be nil where the path of a pod's
	// network namespace stays as long as the namespace.
	Live func() ([]string, error)
	// CallTime limits each call of a plugin that is not networks.Connector's; 0 for networks.CallTime.
	CallTime time.Duration
}

// Folders and files of a network.
const (
	lockFile   = "lock"
	fetchFile  = "fetch"
	callsFile  = "calls"
	recordFile = "network.json"
	stateDir   = "state"
	runDir     = "run"
	logFile    = "log"
	podsDir    = "pods"
)

// record is of the last setup of a network that has ended well. A network without such a setup has a record without an
// entry, pod and boot ID.
type record struct {
	Entry string `json:"entry"` // the configuration's, as it was written
	Image string `json:"image"` // ID
	Pod   string `json:"pod"`   // UUID of the container
	Boot  string `json:"boot"`  // the machine's boot ID

	// Removes says that the image has the executable `remove`.
	Removes bool `json:"removes,omitempty"`
}

func (c *Containers) dir(network string) string { return filepath.Join(c.Dir, network) }

func (c *Containers) store() *pods.Store { return pods.Open(filepath.Join(c.Dir, podsDir), c.Cgroup) }

// names returns the names of what is in the containers' folder, which need not exist.
func (c *Containers) names() ([]string, error) {
	entries, err := os.ReadDir(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// start starts a network's container and sets it up. A container that runs with another
// configuration, or another image, is stopped first, after its calls. The caller has the network's lock.
func (c *Containers) start(ctx context.Context, n networks.Network, image *images.Image) (*container, error) {
	old, err := c.readRecord(n.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := c.awaitCalls(ctx, n.Name); err != nil {
		return nil, err
	}
	var p *container
	err = again(func() (err error) {
		p, err = c.setUp(ctx, n, image, old)
		return err
	})
	return p, err
}

// setUp starts a network's container, calls `setup` in it, and records it. A container that cannot be set up is
// stopped.
func (c *Containers) setUp(ctx context.Context, n networks.Network, image *images.Image,
	old record,
) (*container, error) {
	p, r, err := c.begin(ctx, n.Name, image, old)
	if err != nil {
		return nil, err
	}
	limited, cancel := networks.LimitCall(ctx, c.CallTime)
	defer cancel()
	env, err := c.idleVariables()
	if err == nil {
		err = p.setup(limited, n.Entry, env...)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop(context.WithoutCancel(ctx), n.Name))
	}
	r.Entry = n.Entry
	return p, c.writeRecord(n.Name, r)
}

// begin starts a network's container, which is not set up yet, after it has stopped one that runs. It returns the
// record of the setup, without the entry. old is the record that the network has.
func (c *Containers) begin(ctx context.Context, name string, image *images.Image,
	old record,
) (*container, record, error) {
	if err := c.stop(ctx, name); err != nil {
		return nil, record{}, err
	}
	boot, err := procstat.BootID()
	if err != nil {
		return nil, record{}, err
	}
	if err := c.makeFolders(name, old.Boot != boot); err != nil {
		return nil, record{}, err
	}
	_, err = os.Lstat(filepath.Join(image.Rootfs(), removePath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, record{}, err
	}
	removes := err == nil
	if old.Entry == "" { // the plugin can delete the network although its setup never ends well
		if err := c.writeRecord(name, record{Image: image.ID, Removes: removes}); err != nil {
			return nil, record{}, err
		}
	}
	pod, err := c.launch(ctx, name, image)
	if err != nil {
		return nil, record{}, err
	}
	return &container{pod: pod, log: filepath.Join(c.dir(name), logFile)},
		record{Image: image.ID, Pod: pod.Plan.UUID, Boot: boot, Removes: removes}, nil
}

// launch starts a container and waits until it is up.
func (c *Containers) launch(ctx context.Context, name string, image *images.Image) (*pods.Pod, error) {
	if c.Hold == "" {
		return nil, errors.New("start plugin: the path of this program is unknown; is /proc mounted?")
	}
	planner, err := c.Planner(ctx)
	if err != nil {
		return nil, err
	}
	document, err := c.manifest(name, image)
	if err != nil {
		return nil, err
	}
	plan, _, err := planner.FromManifest("network "+name, document, podplan.Options{Name: name})
	if err != nil {
		return nil, err
	}
	plan.MonitorCgroup = true
	pod, err := c.store().Create(ctx, plan)
	if err != nil {
		return nil, err
	}
	err = pod.Detach(ctx, c.Monitor)
	if failed := (*pods.StartError)(nil); errors.As(err, &failed) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	return &pod.Pod, err
}

// stop stops the container of a network, and also an unrecorded container of a launcher that was killed.
func (c *Containers) stop(ctx context.Context, name string) error {
	all, err := c.store().List()
	if err != nil {
		return err
	}
	for _, pod := range all {
		if pod.Damage == nil && pod.Plan.Name == name {
			if err := c.store().Stop(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeFolders makes a network's folders. After a restart of the machine what the run folder
// holds is about links and processes that are no more.
func (c *Containers) makeFolders(name string, restarted bool) error {
	run := filepath.Join(c.dir(name), runDir)
	if restarted {
		if err := os.RemoveAll(run); err != nil {
			return err
		}
	}
	return errors.Join(os.MkdirAll(run, 0o755), os.MkdirAll(filepath.Join(c.dir(name), stateDir), 0o755))
}

func (c *Containers) readRecord(name string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(c.dir(name), recordFile))
	if err != nil {
		return r, err
	}
	if json.Unmarshal(data, &r) != nil {
		return record{}, nil // a power loss has damaged it; the container is gone as well
	}
	return r, nil
}

func (c *Containers) writeRecord(name string, r record) error {
	return jsonfile.Write(filepath.Join(c.dir(name), recordFile), r)
}

// State is what a network's container is like.
type State struct {
	Running bool
	Image   string // ID of the image, "" if the network has never been used
	PID     int    // its stager's
	Log     string // the file of what the plugin has written to stderr
}

// State returns the state of a network's container, which runs if its main process does.
func (c *Containers) State(ctx context.Context, n networks.Network) (State, error) {
	s := State{Log: filepath.Join(c.dir(n.Name), logFile)}
	r, err := c.readRecord(n.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	s.Image = r.Image
	p, err := c.running(ctx, n.Name, func(r record) bool { return r.Entry == n.Entry })
	if p != nil {
		s.Running, s.PID = true, p.pod.State.Stager.PID
	}
	return s, err
}

// Images maps the ID of each image that a network needs to the network's name: the images of containers, and the last
// plugin that was set up for a network, if a pod uses the network, because its container restarts with this image, or
// if Collect will have the plugin delete the network. used reports whether a pod uses a network.
func (c *Containers) Images(used func(network string) (bool, error)) (map[string]string, error) {
	found, err := c.names()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	needed, err := c.store().ImagesInUse()
	if err != nil {
		return nil, err
	}
	for _, name := range found {
		r, err := c.readRecord(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && r.Image == "" {
			continue // not a network that was set up
		}
		if err != nil {
			return nil, err
		}
		is := c.isLeft(name, r)
		if !is {
			is, err = used(name)
		}
		if err != nil {
			return nil, err
		}
		if is {
			needed[r.Image] = name
		}
	}
	return needed, nil
}

// Validate starts the network's container if it does not run, and calls `setup` again, which checks the configuration
// and the plugin's health, and, where the plugin can, the pods that are connected. It may change the host. The
// plugin's image must be there and trusted, also if the container runs: the next one needs it.
func (c *Containers) Validate(ctx context.Context, n networks.Network) error {
	_, unpin, err := c.Image(ctx, n.ACI)
	if err != nil {
		return err
	}
	unpin()
	return again(func() error { return c.check(ctx, n) })
}

// check is Validate, when the plugin's image is there.
func (c *Containers) check(ctx context.Context, n networks.Network) error {
	p, release, err := c.use(ctx, n.Name)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := networks.LimitCall(ctx, c.CallTime)
	defer cancel()
	return p.setup(ctx, n.Entry, checkPods)
}
