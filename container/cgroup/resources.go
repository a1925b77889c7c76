package cgroup

import (
	"github.com/opencontainers/cgroups"

	"kurma.io/stager/spec"
)

// Resources turns limits into those of the cgroup library, but for those of block devices.
func Resources(r spec.Resources) *cgroups.Resources {
	out := &cgroups.Resources{
		Memory: r.MemoryLimit, MemoryReservation: r.MemoryRequest,
		CpuQuota: r.CPUQuota, CpuPeriod: r.CPUPeriod, CpuShares: r.CPUShares,
	}
	if r.PIDs > 0 {
		out.PidsLimit = &r.PIDs
	}
	if cgroups.IsCgroup2UnifiedMode() && r.CPUShares != 0 {
		out.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(r.CPUShares)
	}
	return out
}
