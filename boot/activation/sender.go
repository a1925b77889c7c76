package activation

import (
	"fmt"
	"strings"

	"github.com/opencontainers/cgroups"

	"kurma.io/stager/internal/procstat"
)

// elsewhere reports whether a process is known to be outside a cgroup and the cgroups below it.
// cgroup is a path as in spec.Spec. It returns false for a process that has ended.
func elsewhere(pid int, cgroup string) bool {
	paths, err := cgroups.ParseCgroupFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for controller, path := range paths {
		if controller == "" && !cgroups.IsCgroup2UnifiedMode() {
			continue
		}
		if strings.Contains(path+"/", cgroup+"/") {
			return false
		}
	}
	// A process that has ended and is not reaped yet is in "/" (cgroups(7), version 1).
	stat, err := procstat.Read(pid)
	return err == nil && stat.State != 'Z'
}
