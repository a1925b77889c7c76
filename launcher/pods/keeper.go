package pods

import (
	"os"

	"kurma.io/stager/launcher/networks"
)

// Keeper is a pod in the process that works on it and has its lock: the one that makes the pod, then its monitor, or
// one that takes down a pod without a monitor. It alone changes the pod's record on disk. One goroutine at a time may
// use it, its Pod included.
type Keeper struct {
	Pod

	// LastLines, unless nil, returns what the apps of a pod that failed to start have written last,
	// for the StartError. It is called before the pod is deleted.
	LastLines func(*Pod) []AppOutput

	lock      *os.File
	rooted    bool // the stager's root is made
	connector *networks.Connector
	namespace *networks.Namespace // of a pod with networks, in its monitor
	leave     func() error        // moves the monitor out of its own cgroup; nil if it is not in it
	tried     bool                // a failed connect has tried to undo what it did
	logBegin  int64               // where in the log the stager's own lines begin
	starter   []string            // see StartUnattended
	enter     func() error        // likewise; nil for none
}
