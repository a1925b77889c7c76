package pods

import (
	"encoding/json"
	"net/netip"
	"time"

	"github.com/google/uuid"

	"kurma.io/stager/launcher/networks"
)

// Plan is everything that a pod's launch needs: plain data, decided before anything is
// changed.
type Plan struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	// Cgroup is the pod's control group, a path below each hierarchy's root. Create sets it.
	Cgroup string `json:"cgroup"`

	StagerImage string   `json:"stagerImage"` // ID
	StagerRoot  string   `json:"stagerRoot"`  // the image's files
	Exec        []string `json:"exec"`        // the stager's argv; Exec[0] is an absolute path
	Env         []string `json:"env"`         // its complete environment, NAME=value
	// LogDir is the stager's folder of the apps' logs, an absolute path in its root;
	// "" if its image does not say.
	LogDir string `json:"logDir,omitempty"`

	// EventsFile is the file in which the stager reports the changes of its apps' states, an absolute path in its root;
	// "" if its image does not say.
	EventsFile string `json:"eventsFile,omitempty"`

	Manifest    json.RawMessage `json:"manifest"` // the Stager Manifest
	Layers      []Layer         `json:"layers"`
	Volumes     []Volume        `json:"volumes"`
	HostNetwork bool            `json:"hostNetwork"`
	// Networks are the networks that the pod is connected to, in this order; none with
	// HostNetwork.
	Networks []networks.Attachment `json:"networks,omitempty"`
	// Hostname is that of the apps of a pod with a hosts file, "" for none; it is a name of the pod's addresses.
	Hostname string `json:"hostname,omitempty"`
	// AddedHosts are lines of the pod's hosts file, before those of the pods.
	AddedHosts []Host `json:"addedHosts,omitempty"`
	// Ports are the ports of the host that lead to the pod.
	Ports []networks.PortMapping `json:"ports,omitempty"`
	// Journal is the host's folder of journald's sockets, which becomes
	// /run/systemd/journal in the stager's root; "" for none.
	Journal string `json:"journal,omitempty"`
	Apps    []App  `json:"apps"` // in the pod's order
	// Labels are the userLabels of the pod's manifest.
	Labels map[string]string `json:"labels,omitempty"`

	// Image is the reference by which the image of the pod's only app was asked for; "" for the pod of a manifest.
	Image string `json:"image,omitempty"`
	// Options are the options of run that the pod was started with and that no field of a pod manifest has, as words.
	Options []string `json:"options,omitempty"`

	// CgroupParent is the group in which a restart makes the pod's cgroup; "" for the configuration's.
	CgroupParent string `json:"cgroupParent,omitempty"`

	// MonitorCgroup has the monitor run in a cgroup beside the pod's, which Cgroup and monitorSuffix
	// name. It is for a pod that serves others: the cgroup of the process that starts it may be
	// that of a service, and the service's end kills every process in it.
	MonitorCgroup bool `json:"monitorCgroup,omitempty"`

	// ChangingLimits says that the limits of the cgroups around the pod's may be raised while it runs: the pod's cgroup
	// does not get them.
	ChangingLimits bool `json:"changingLimits,omitempty"`

	// PIDNamespace is the file of a PID namespace in which StartUnattended starts the stager, such as /proc/PID/ns/pid;
	// "" for this process's own. The pod's apps are in it if the pod asks for the host's.
	PIDNamespace string `json:"pidNamespace,omitempty"`

	// VolumesOf is the UUID of the pod whose empty volumes this pod takes, see Store.MoveVolumes; "" for none.
	VolumesOf string `json:"volumesOf,omitempty"`

	// Remove has the pod deleted with its logs when it ends.
	Remove bool `json:"remove,omitempty"`

	// StopTimeout is how long a stager may take to end after SIGTERM.
	StopTimeout time.Duration `json:"stopTimeout"`
}

// Again returns the plan of another pod like this one, which takes its volumes.
func (p Plan) Again() Plan {
	p.UUID, p.VolumesOf = uuid.NewString(), p.UUID
	return p
}

// Host is a name that a pod's hosts file has beside those of pods.
type Host struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
}

// Layer is an image that an app of the pod is made of.
type Layer struct {
	ID  string `json:"id"`
	Dir string `json:"dir"` // its extracted files
}

// Volume becomes /volumes/NAME in the stager's root.
type Volume struct {
	Name string `json:"name"`
	// Source is the host's file or folder; "" for an empty volume, made for the pod, and for Hosts.
	Source      string `json:"source,omitempty"`
	Hosts       bool   `json:"hosts,omitempty"` // the volume is the pod's hosts file, see hosts.go
	ReadOnly    bool   `json:"readOnly,omitempty"`
	SingleMount bool   `json:"singleMount,omitempty"` // without the mounts below Source
	ReadOnlyTop bool   `json:"readOnlyTop,omitempty"` // read-only, without the mounts below Source
	Shared      bool   `json:"shared,omitempty"`      // what is mounted in one appears in the other

	// Of an empty volume: permissions, setuid, setgid and sticky bits as in chmod(2), and owner.
	Mode uint32 `json:"mode,omitempty"`
	UID  int    `json:"uid,omitempty"`
	GID  int    `json:"gid,omitempty"`
}

// App is what `exec` needs of an app: a command in the app gets its user and working directory.
type App struct {
	Name             string `json:"name"`
	User             string `json:"user"`
	Group            string `json:"group"`
	SupplementaryGID []int  `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string `json:"workingDirectory,omitempty"`
	TTY              bool   `json:"tty,omitempty"` // the app has its own terminal
}

// Environment is one environment variable.
type Environment struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Phase is where a pod is in its life:
//
//	Starting → Running → Stopping → Exited, kept with its logs until Remove or Collect
//	    │          └─────────────→ Exited
//	    └→ (gone), the pod was not up
//
// A pod with Remove in its plan is gone instead of Exited. Any of the first three becomes Dead
// when its monitor is killed; an unattended one when nobody attends it and its stager has ended, or its start was not
// finished.
type Phase string

// The phases.
const (
	Starting Phase = "starting" // the ready descriptor is still open
	Running  Phase = "running"
	Stopping Phase = "stopping"
	Exited   Phase = "exited"
	Dead     Phase = "dead"    // never in state.json: the pod is not Exited and its lock is free
	Damaged  Phase = "damaged" // never in state.json: plan or state cannot be read
)

// State is where a pod is in its life. Only the process that has the pod's lock writes it, see Keeper.
type State struct {
	Phase   Phase     `json:"phase"`
	Created time.Time `json:"created"`
	Monitor Process   `json:"monitor"` // none if the pod is Unattended
	Stager  Process   `json:"stager"`
	Exit    *Exit     `json:"exit,omitempty"` // nil until the stager has ended, before the pod has become Exited
	Ended   time.Time `json:"ended,omitzero"` // when the pod has become Exited; of an unattended one, when it had its end

	// Unattended says that the pod was started without a monitor, see StartUnattended.
	Unattended bool `json:"unattended,omitempty"`
	// TakeDownError is why the last attempt to take down an unattended pod failed, in one line. The pod is Dead.
	TakeDownError string `json:"takeDownError,omitempty"`

	// DisconnectError is why the last attempt to disconnect a pod that has ended from its networks
	// failed, in one line; "" if the pod is disconnected.
	DisconnectError string `json:"disconnectError,omitempty"`

	// MissingCgroups are the parents of the pod's cgroup that did not exist before the monitor made
	// the cgroup, see cgroups.Group.Missing.
	MissingCgroups []string `json:"missingCgroups,omitempty"`
}

// Exit is how a stager ended: Code is its exit status. If a signal ended it, Code is 128
// plus the signal's number, and Signal is its name.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// OOMKilled says that the kernel has killed a process of the stager because memory was used up.
	OOMKilled bool `json:"oomKilled,omitempty"`
}
