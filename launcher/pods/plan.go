package pods

import (
	"encoding/json"
	"time"
)

// Plan is all that a pod's launch needs: plain data, decided before anything
// is touched.
type Plan struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	// Cgroup is the pod's control group, a path below each hierarchy's root. Create sets it.
	Cgroup string `json:"cgroup"`

	StagerImage string   `json:"stagerImage"` // ID
	StagerRoot  string   `json:"stagerRoot"`  // the image's files, to copy
	Exec        []string `json:"exec"`        // the stager's argv; Exec[0] is an absolute path
	Env         []string `json:"env"`         // its whole environment, NAME=value
	// LogDir is the stager's folder of the apps' logs, an absolute path in its root;
	// "" if its image does not say.
	LogDir string `json:"logDir,omitempty"`

	Manifest    json.RawMessage `json:"manifest"` // the Stager Manifest
	Layers      []Layer         `json:"layers"`
	Volumes     []Volume        `json:"volumes"`
	HostNetwork bool            `json:"hostNetwork"`
	// Journal is the host's folder of journald's sockets, which becomes
	// /run/systemd/journal in the stager's root; "" for none.
	Journal string `json:"journal,omitempty"`
	Apps    []App  `json:"apps"` // in the pod's order

	// StopTimeout is how long a stager gets to end after SIGTERM.
	StopTimeout time.Duration `json:"stopTimeout"`
}

// Layer is an image that some app of the pod is made of.
type Layer struct {
	ID  string `json:"id"`
	Dir string `json:"dir"` // its extracted files
}

// Volume becomes /volumes/NAME in the stager's root.
type Volume struct {
	Name string `json:"name"`
	// Source is the host's file or folder; "" for an empty volume, made for the pod.
	Source      string `json:"source,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	SingleMount bool   `json:"singleMount,omitempty"` // without what is mounted below Source

	// Of an empty volume: permissions, setuid, setgid and sticky bits as in chmod(2), and owner.
	Mode uint32 `json:"mode,omitempty"`
	UID  int    `json:"uid,omitempty"`
	GID  int    `json:"gid,omitempty"`
}

// App is an app of the pod as `exec` needs it: whose user, folder and
// environment a command in it gets.
type App struct {
	Name             string        `json:"name"`
	User             string        `json:"user"`
	Group            string        `json:"group"`
	SupplementaryGID []int         `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string        `json:"workingDirectory,omitempty"`
	Environment      []Environment `json:"environment,omitempty"`
}

// Environment is one environment variable.
type Environment struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Phase is where a pod is in its life:
//
//	Starting → Running → Stopping → (gone)
//	    │          └→ Exited, a detached pod's stager ended by itself: kept for a person to see
//	    └→ (gone)
//
// Any of the first three becomes Dead when its monitor is killed.
type Phase string

// The phases.
const (
	Starting Phase = "starting" // the ready descriptor is still open
	Running  Phase = "running"
	Stopping Phase = "stopping"
	Exited   Phase = "exited"
	Dead     Phase = "dead"    // never written down: it is what a free lock means
	Damaged  Phase = "damaged" // never written down: plan or state cannot be read
)

// State is what has become of a pod. Its monitor alone writes it.
type State struct {
	Phase   Phase     `json:"phase"`
	Created time.Time `json:"created"`
	Monitor Process   `json:"monitor"`
	Stager  Process   `json:"stager"`
	Exit    *Exit     `json:"exit,omitempty"`
}

// Exit is how a stager ended: Code is its exit status, or 128 and the number
// of the signal that ended it, of which Signal is the name then.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
}
