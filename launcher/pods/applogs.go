package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The apps' logs, their last states and their events are what is left of a pod that has ended. Their folder is in the
// pod's folder from the start, and is mounted in the stager's root: the root can be removed, and nothing is moved.

func (p *Pod) logsPath() string { return filepath.Join(p.Dir, appLogsDir) }

// logDir returns Plan.LogDir relative to the stager's root. The path does not lead out of the root.
func (p *Pod) logDir() string { return strings.TrimPrefix(filepath.Join("/", p.Plan.LogDir), "/") }

// makeLogs makes the folder of the apps' logs and its mount point in the stager's root.
func (k *Keeper) makeLogs(root *os.Root) error {
	if k.Plan.LogDir == "" {
		return nil
	}
	var at string
	for name := range strings.SplitSeq(k.logDir(), "/") {
		at = filepath.Join(at, name)
		if err := makeDir(root, at); err != nil {
			return err
		}
	}
	return os.Mkdir(k.logsPath(), 0o755)
}

// mountLogs mounts the folder of the apps' logs in the stager's root.
func (k *Keeper) mountLogs(root string) error {
	if k.Plan.LogDir == "" {
		return nil
	}
	if err := bind(k.logsPath(), filepath.Join(root, k.logDir()), bindOptions{}); err != nil {
		return fmt.Errorf("mount folder of logs: %w", err)
	}
	return nil
}

// placeOf returns the folder of the host that a path in the stager's root leads to, and the rest of the path.
func (p *Pod) placeOf(path string) (folder, name string) {
	path = filepath.Join("/", path)
	if below, found := strings.CutPrefix(path, "/"+p.logDir()+"/"); found && p.Plan.LogDir != "" {
		return p.logsPath(), below
	}
	return filepath.Join(p.Dir, rootDir), strings.TrimPrefix(path, "/")
}
