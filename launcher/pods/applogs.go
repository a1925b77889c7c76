package pods

import (
	"errors"
	"fmt"
	"io/fs"
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

// TakeLogs gives a new pod, which has not been started, the logs of the apps of a pod that has ended. They stay that
// pod's, too, until it is deleted: the files have two names. The new pod's stager appends to the last one.
func (k *Keeper) TakeLogs(ended *Pod) error {
	if k.Plan.LogDir == "" {
		return nil
	}
	for _, app := range k.Plan.Apps {
		err := linkLogs(filepath.Join(ended.logsPath(), app.Name), filepath.Join(k.logsPath(), app.Name))
		if err != nil {
			return fmt.Errorf("keep logs of app %q: %w", app.Name, err)
		}
	}
	return nil
}

// linkLogs gives the files of a log names in another folder, but for the lock of the log's writer.
func linkLogs(from, to string) error {
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the app has written none
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o750); err != nil {
		return err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".log" {
			continue
		}
		if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
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
