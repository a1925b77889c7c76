package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// setting is a text for a file of a cgroup.
type setting struct{ file, text string }

// applyLimits writes limits into the cgroup of a container's app.
func applyLimits(pod *pods.Pod, app string, l records.Limits) error {
	var all []setting
	if l.CPUs != "" {
		all = append(all, setting{"cpuset.cpus", l.CPUs})
	}
	if l.Mems != "" {
		all = append(all, setting{"cpuset.mems", l.Mems})
	}
	for key, value := range l.Unified {
		all = append(all, setting{key, value})
	}
	return applySettings(pod, app, all)
}

// applySettings writes each text into its file, in the hierarchy that has the file.
func applySettings(pod *pods.Pod, app string, all []setting) error {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return err
	}
	for _, s := range all {
		if err := applySetting(group, filepath.Join(names.AppsCgroup, app), s); err != nil {
			return fmt.Errorf("limit container: %w", err)
		}
	}
	return nil
}

func applySetting(group *cgroups.Group, below string, s setting) error {
	for _, h := range group.Hierarchies {
		file, err := os.OpenFile(filepath.Join(group.Dir(h), below, s.file), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(s.text)
		return errors.Join(err, file.Close())
	}
	return fmt.Errorf("no cgroup has %s", s.file)
}
