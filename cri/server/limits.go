package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/cri/translate"
	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// isOuter says of a limit's file that the limit is that of the container's own cgroup, which has the stager as well:
// the processors, so that no program starts on others, and the shares, which count between the containers of a sandbox.
func isOuter(s records.Setting) bool {
	return isCPUSet(s) || s.File == "cpu.shares" || s.File == "cpu.weight"
}

func isCPUSet(s records.Setting) bool { return s.File == "cpuset.cpus" || s.File == "cpuset.mems" }

// limitBeforeStart makes the container's own cgroup, and writes its limits.
func limitBeforeStart(pod *pods.Pod, r records.Container) error {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return err
	}
	asked := new(runtimeapi.LinuxContainerResources)
	if err := errors.Join(decode(r.Resources, asked), group.Make()); err != nil {
		return err
	}
	all, err := translate.Changes(asked, cgroupsOf(group))
	if err != nil {
		return err
	}
	for _, s := range all {
		if isOuter(s) {
			if err := applySetting(group, "", s); err != nil {
				return fmt.Errorf("limit container: %w", err)
			}
		}
	}
	return nil
}

// limitStarted writes the other limits for which the stager has no isolators into the cgroup of a container's app, if
// it has not ended.
func limitStarted(pod *pods.Pod, r records.Container) error {
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return err
	}
	for _, s := range r.Limits.Settings() {
		if isOuter(s) {
			continue
		}
		if err := applySetting(group, appGroup(r), s); err != nil && !errors.Is(err, errNoGroup) {
			return fmt.Errorf("limit container: %w", err)
		}
	}
	return nil
}

// lowestScore returns the lowest oom_score_adj of an app in a sandbox with that cgroup. lowest is the stager's, and not
// -1000 if the stager lacks CAP_SYS_RESOURCE (proc_pid_oom_score_adj(5)): then the OOM killer could choose the stager,
// which is larger than each process of an app of many. A score counts thousandths of the memory that is used up, so
// that of the app is higher by as many as the stager takes of it at most.
func lowestScore(group *cgroups.Group, lowest int) (int64, error) {
	const (
		exempt, highest = -1000, 1000
		stager          = 16 << 20 // bytes
	)
	if lowest <= exempt {
		return exempt, nil
	}
	limit, err := group.MemoryLimit()
	if err != nil {
		return 0, err
	}
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err != nil {
		return 0, os.NewSyscallError("sysinfo", err)
	}
	limit = max(1, min(limit, int64(machine.Totalram)*int64(machine.Unit)))
	return min(highest, int64(lowest)+1+stager*1000/limit), nil
}

// appGroup is the cgroup of the container's app below the container's own.
func appGroup(r records.Container) string { return filepath.Join(names.AppsCgroup, r.App) }

// levels are the cgroups below the container's own, each inside the one before, in which a limit is changed. In
// version 2 the cgroups inside have no processors of their own, and follow.
func levels(group *cgroups.Group, r records.Container, s records.Setting) []string {
	switch {
	case isCPUSet(s) && isUnified(group):
		return []string{""}
	case isCPUSet(s):
		return []string{"", names.AppsCgroup, appGroup(r)}
	case isOuter(s):
		return []string{"", appGroup(r)}
	}
	return []string{appGroup(r)}
}

// change changes limits of a container that runs: all, or after an error none.
func change(group *cgroups.Group, r records.Container, changes []records.Setting) error {
	var undo []func() error
	if err := checkMemory(group, r, changes); err != nil {
		return err
	}
	for _, s := range changes {
		inside, now := levels(group, r, s), make(map[string]string)
		for _, below := range inside {
			now[below] = s.Text
		}
		old := readSettings(group, inside, s.File)
		undo = append(undo, func() error { return writeSettings(group, inside, s.File, old) })
		if err := writeSettings(group, inside, s.File, now); err != nil {
			for _, back := range slices.Backward(undo) {
				err = errors.Join(err, back())
			}
			return err
		}
	}
	return nil
}

// checkMemory refuses a lower limit of memory that is not above what the app uses, the file cache included, as kubelet
// and runc do. Version 1 itself refuses a limit to which it cannot shrink the app; version 2 kills the app. A request
// that changes something else names the limit of today, which the file cache of a healthy app fills.
func checkMemory(group *cgroups.Group, r records.Container, changes []records.Setting) error {
	for _, s := range changes {
		limit, err := strconv.ParseInt(s.Text, 10, 64)
		if s.File != "memory.max" || err != nil { // "max"
			continue
		}
		text, err := readSetting(group, appGroup(r), s.File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // version 1 has neither file
			return err
		}
		if now, err := strconv.ParseInt(text, 10, 64); err == nil && limit >= now {
			continue
		}
		text, err = readSetting(group, appGroup(r), "memory.current")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if used, _ := strconv.ParseInt(text, 10, 64); err == nil && limit <= used {
			return fmt.Errorf("memory limit of %d bytes: the app uses %d bytes", limit, used)
		}
	}
	return nil
}

// readSettings returns the texts of a file in cgroups; none where it cannot be read. A cgroup without processors of its
// own (version 2) has those of the cgroup around it, and cannot be without again while it has processes.
func readSettings(group *cgroups.Group, inside []string, file string) map[string]string {
	texts := make(map[string]string)
	for _, below := range inside {
		text, err := readSetting(group, below, file)
		if text == "" && err == nil {
			text, err = readSetting(group, below, file+".effective")
		}
		if err == nil {
			texts[below] = text
		}
	}
	return texts
}

// writeSettings writes a file of cgroups, each inside the one before. In version 1 no cgroup may have processors or
// nodes that the cgroup around it has not: for a moment they have the old ones and the new ones.
func writeSettings(group *cgroups.Group, inside []string, file string, texts map[string]string) error {
	for _, below := range inside {
		old, err := readSetting(group, below, file)
		if !isCPUSet(records.Setting{File: file}) || err != nil || old == "" {
			continue
		}
		if err := applySetting(group, below, records.Setting{File: file, Text: old + "," + texts[below]}); err != nil {
			return err
		}
	}
	for _, below := range slices.Backward(inside) {
		text, known := texts[below]
		if !known {
			continue
		}
		if err := applySetting(group, below, records.Setting{File: file, Text: text}); err != nil {
			return err
		}
	}
	return nil
}

func readSetting(group *cgroups.Group, below, file string) (string, error) {
	for _, h := range group.Hierarchies {
		text, err := os.ReadFile(filepath.Join(group.Dir(h), below, file))
		if !errors.Is(err, fs.ErrNotExist) {
			return strings.TrimSpace(string(text)), err
		}
	}
	return "", fs.ErrNotExist
}

// cgroupsOf returns what the cgroups of a group that is there can limit.
func cgroupsOf(group *cgroups.Group) translate.Cgroups {
	return translate.Cgroups{Unified: isUnified(group), Has: func(file string) bool {
		return slices.ContainsFunc(group.Hierarchies, func(h cgroups.Hierarchy) bool {
			_, err := os.Stat(filepath.Join(group.Dir(h), file))
			return err == nil
		})
	}}
}

// errNoGroup says that a container has no cgroup any more, because it has ended.
var errNoGroup = errors.New("the container has ended")

// applySetting writes a text into its file of a cgroup below a group, in the hierarchy that has the file.
func applySetting(group *cgroups.Group, below string, s records.Setting) error {
	var err error
	for _, h := range group.Hierarchies {
		if err = cgroups.WriteExisting(filepath.Join(group.Dir(h), below, s.File), s.Text); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	switch there := slices.ContainsFunc(group.Hierarchies, func(h cgroups.Hierarchy) bool {
		_, err := os.Stat(filepath.Join(group.Dir(h), below))
		return err == nil
	}); {
	case err != nil && !there:
		return errNoGroup
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no cgroup has %s", s.File)
	}
	return err
}

// UpdateContainerResources implements the CRI, for a container that runs.
func (s *Server) UpdateContainerResources(
	ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest,
) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	release, err := s.locks.take(ctx, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	defer release()
	record, pod, err := s.running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	group, err := cgroups.Open(pod.Plan.Cgroup)
	if err != nil {
		return nil, err
	}
	changes, err := translate.Changes(r.GetLinux(), cgroupsOf(group))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInvalid, err)
	}
	if err := change(group, record, changes); err != nil {
		return nil, fmt.Errorf("limit container: %w", err)
	}
	if record.Resources, err = mergeResources(record.Resources, r.GetLinux()); err != nil {
		return nil, err
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, s.records.WriteContainer(record)
}

// mergeResources returns the recorded resources, overridden by the changes.
func mergeResources(recorded json.RawMessage, changes *runtimeapi.LinuxContainerResources) (json.RawMessage, error) {
	now := new(runtimeapi.LinuxContainerResources)
	if err := decode(recorded, now); err != nil {
		return nil, err
	}
	if len(changes.GetHugepageLimits()) > 0 {
		now.HugepageLimits = nil // a merge appends to lists
	}
	proto.Merge(now, changes)
	return encode(now), nil
}

func isUnified(group *cgroups.Group) bool {
	return len(group.Hierarchies) == 1 && group.Hierarchies[0].V2
}

// UpdatePodSandboxResources implements the CRI. The pod's limits are those of kubelet's own cgroup.
func (s *Server) UpdatePodSandboxResources(
	context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
