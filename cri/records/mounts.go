package records

// HostVolumes are names of the pod's volumes: Shared volumes' mounts appear on the host; ReadOnlyTop volumes are
// read-only, but not the mounts below.
type HostVolumes struct {
	Shared      []string `json:"shared,omitempty"`
	ReadOnlyTop []string `json:"readOnlyTop,omitempty"`
}

// Bind is a path of the host that is mounted in a container.
type Bind struct {
	Source, Target string
	ReadOnly       bool
	Recursive      bool // of a read-only one: what is mounted below is read-only, too
	Propagation    Propagation
	Device         bool     `json:",omitempty"` // the container may use the device that it is
	Options        []string `json:",omitempty"` // noexec, nodev, nosuid: also of what is mounted below
}

// Propagation says which mounts below the host's path and the container's appear in the other one.
type Propagation string

// The propagations.
const (
	Private Propagation = ""       // none
	Slave   Propagation = "slave"  // those of the host
	Shared  Propagation = "shared" // those of both
)

// Tree is a mount with mounts inside it. Their targets are relative to the target of the tree.
type Tree struct {
	Name string // of the tree among those of its container
	Bind
	Inner []Bind
}
