package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/launcher/sources"
)

// journalDir holds the sockets of journald, if the host has one.
const journalDir = "/run/systemd/journal"

// ErrNoStager says that the store does not have the stager's image.
var ErrNoStager = errors.New("pods need a stager image")

// PodOptions is a pod to start: that of an image, or of a pod manifest.
type PodOptions struct {
	// Image is the image of the pod's only app: a source with a scheme, see sources.Is, an ID, or NAME[:VERSION]. The
	// pod ends with its app, unless the configuration or the Options have another exit policy.
	Image string
	Args  []string // follow those of the image
	// Pull says when the images of sources are imported: "" or "missing", unless they have been imported; "always"; or
	// "never". The stager's image is imported unless it has been, or never.
	Pull string

	// Manifest is a pod manifest, instead of an image. File is its path, for the pod's name and for errors.
	Manifest []byte
	File     string

	// Options is what is asked for beside it.
	Options podplan.Options

	// CgroupParent is the group in which the pod's cgroup is made, also by a restart, a path below each hierarchy's root;
	// "" for the configuration's.
	CgroupParent string
	// InService says that CgroupParent is that of the service that this process is, and ends with it: no restart uses it.
	InService bool
	// ChangingLimits says that the limits of that group, or of one around it, may be raised while the pod runs. Without
	// it the pod's cgroup has the lowest of them from its start, so that an app that reaches it does not have the stager
	// killed.
	ChangingLimits bool
	// PIDNamespace is the file of a PID namespace in which StartUnattended starts the stager; "" for this process's own.
	// The pod's apps are in the namespace if the pod asks for the host's.
	PIDNamespace string
	// Detached has the pod watched by a process of its own, so that the pod outlives this process.
	Detached bool
}

// Launch is a pod that has been made and not been started. Its images cannot be removed. The caller calls Start if the
// pod is PodOptions.Detached, otherwise Run or StartUnattended, and Close in any case.
type Launch struct {
	pod     *pods.Keeper
	monitor *pods.Monitor // of a pod that is detached
	begun   bool          // Start, Run or StartUnattended has the pod, or Close has deleted it
}

// Pod returns the pod's record as it is now. While Run works, only its function up may call it.
func (l *Launch) Pod() *pods.Pod {
	record := l.pod.Pod
	return &record
}

// Create plans a pod and puts it into the store. It imports images of sources before, see PodOptions.Pull.
// The warnings are about requests that have no effect, a line each; they come with an error, too, as a misspelt key
// may be its cause.
func (d *Daemon) Create(ctx context.Context, o PodOptions) (launch *Launch, warnings []string, err error) {
	store := d.podsBelow(o.CgroupParent)
	var got obtained
	obtain := func() (err error) {
		got, err = d.obtainAll(ctx, o)
		return err
	}
	release, err := d.pinned(obtain, func() bool { return d.anyGone(got) })
	if err != nil {
		return nil, nil, err
	}
	defer release() // afterwards the pod's plan says that the images are in use
	launch = new(Launch)
	uuid := "" // of a pod that is not detached, a new one
	if o.Detached {
		if launch.monitor, err = store.StartMonitor(d.programs.Monitor); err != nil {
			return nil, nil, err
		}
		uuid = launch.monitor.UUID
	}
	launch.pod, warnings, err = d.create(ctx, store, got, uuid, o)
	if err != nil {
		return nil, warnings, errors.Join(err, launch.Close())
	}
	launch.pod.LastLines = lastLines
	return launch, warnings, nil
}

// Start has the pod's monitor start the pod, and returns when all of its apps have been started. A pod that does not
// start is deleted; the error is a pods.StartError then.
func (l *Launch) Start(ctx context.Context) error {
	l.begun = true
	return l.monitor.HandOver(ctx, l.pod)
}

// Run starts the pod and returns when it has ended. This process is the pod's monitor: the pod ends with it, and is
// stopped when ctx ends. Run calls up when all apps have been started; its error stops the pod. The pod stays in the
// store if it was up.
func (l *Launch) Run(ctx context.Context, up func() error) (pods.Exit, error) {
	l.begun = true
	return l.pod.Run(ctx, true, up)
}

// StartUnattended starts the pod without a monitor, and returns when all of its apps have been started, see
// pods.Keeper.StartUnattended.
func (l *Launch) StartUnattended(
	ctx context.Context, starter []string, enter func() error,
) (*pods.Attendant, error) {
	l.begun = true
	return l.pod.StartUnattended(ctx, starter, enter)
}

// Close deletes a pod that was not started, and ends its monitor. It may be called again. The error says that such a
// pod is left.
func (l *Launch) Close() error {
	if l.monitor != nil {
		l.monitor.Close()
	}
	if l.pod == nil || l.begun {
		return nil
	}
	l.begun = true
	if err := l.pod.Discard(); err != nil {
		return fmt.Errorf("delete pod that was not started: %w", err)
	}
	return nil
}

// Monitor is the main function of the process of Programs.Monitor, which watches the pod in that folder until the pod
// ends. If ctx ends, it stops the pod.
func (d *Daemon) Monitor(ctx context.Context, dir string) error {
	return pods.RunDetached(ctx, dir, d.Connector(), lastLines)
}

// podsBelow opens the store of pods. New pods have their cgroups in the group parent, "" for the configuration's.
func (d *Daemon) podsBelow(parent string) *pods.Store {
	store := pods.Open(d.config.PodsDirectory, cmp.Or(parent, d.config.ParentCgroupName))
	store.Connector = d.Connector()
	return store
}

// portAttempts is how often ports of the host are chosen for a pod: others that start at the same time may choose the
// same ones.
const portAttempts = 5

// again reports whether a pod that could not be made is planned again: what was chosen for it may have been taken.
func again(err error, o podplan.Options, attempt int) bool {
	choosesPorts := slices.ContainsFunc(o.Publish, func(p networks.PortMapping) bool { return p.HostPort == 0 })
	return errors.Is(err, pods.ErrNameTaken) && o.Name == "" ||
		errors.Is(err, pods.ErrPortTaken) && choosesPorts && attempt < portAttempts
}

// create plans a pod and puts it into the store, while its images are pinned.
func (d *Daemon) create(ctx context.Context, store *pods.Store, got obtained, uuid string,
	o PodOptions,
) (*pods.Keeper, []string, error) {
	imageStore, ring, err := d.imagesAndKeys()
	if err != nil {
		return nil, nil, err
	}
	asked := o.Options
	for attempt := 1; ; attempt++ {
		var names map[string]string
		if asked.Name == "" { // else nobody asks for them, and each pod is read
			if names, err = store.LiveNames(); err != nil {
				return nil, nil, err
			}
		}
		if o.Options.Publish, err = store.ChoosePorts(asked.Publish); err != nil {
			return nil, nil, err
		}
		taken := func(name string) bool { return names[name] != "" }
		plan, warnings, err := d.plan(imageStore.Catalog(ring, d.config.ImagePins), got, uuid, taken, o)
		if err != nil {
			return nil, warnings, err
		}
		plan.Image, plan.ChangingLimits = sources.Absolute(o.Image), o.ChangingLimits
		if !o.InService {
			plan.CgroupParent = o.CgroupParent
		}
		plan.PIDNamespace = o.PIDNamespace
		pod, err := store.Create(ctx, plan)
		if err == nil { // no removal of a volume overlooks the pod from now on
			if err := d.makeVolumes(ctx, plan); err != nil {
				return nil, warnings, errors.Join(err, pod.Discard())
			}
			return pod, warnings, nil
		}
		if !again(err, asked, attempt) {
			return nil, warnings, err
		}
	}
}

// plan plans a pod, see podplan.Planner for uuid and taken, and returns the plan's warnings, also with an error.
func (d *Daemon) plan(catalog *images.Catalog, got obtained, uuid string, taken func(name string) bool,
	o PodOptions,
) (plan pods.Plan, warnings []string, err error) {
	stager, err := findStager(catalog, got[d.config.DefaultStagerImage])
	if err != nil {
		return pods.Plan{}, nil, err
	}
	planner := podplan.Planner{
		Images:       catalog,
		Obtained:     got,
		Stager:       stager,
		StagerConfig: d.config.DefaultStagerConfig,
		CheckSource:  pods.CheckSource,
		Volumes:      d.volumes(),
		Reachable:    pods.Reachable,
		Journal:      hostJournal(),
		Networks:     d.networks,
		UUID:         uuid,
		Taken:        taken,
	}
	if o.Manifest != nil {
		plan, warnings, err = planner.FromManifest(o.File, o.Manifest, o.Options)
	} else {
		o.Options.DefaultExit = cmp.Or(o.Options.DefaultExit, "all")
		plan, warnings, err = planner.FromImage(got[o.Image], o.Args, o.Options)
	}
	return plan, append(catalog.Warnings(), warnings...), err
}

// findStager returns the stager's image, which can be trusted.
func findStager(catalog *images.Catalog, ref string) (*images.Image, error) {
	stager, err := catalog.Stager(ref)
	switch {
	case errors.Is(err, images.ErrNotFound) && filepath.IsAbs(ref):
		err = fmt.Errorf("find stager image: no image is called %q; defaultStagerImage names an image in that file as "+
			"file://%[1]s", ref)
	case errors.Is(err, images.ErrNotFound):
		err = errors.Join(err, ErrNoStager)
	}
	return stager, err
}

// hostJournal is the host's folder of journald's sockets, "" if it has none.
func hostJournal() string {
	if _, err := os.Stat(filepath.Join(journalDir, "socket")); err != nil {
		return ""
	}
	return journalDir
}
