package cgroup

import (
	"github.com/opencontainers/cgroups"

	"kurma.io/stager/spec"
)

// Resources converts limits to those of the cgroup library, except the limits of block devices,
// see LimitBlockDevices.
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
