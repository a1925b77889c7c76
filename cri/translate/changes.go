package translate

import (
	"fmt"
	"slices"
	"strconv"

	"kurma.io/stager/cri/records"

	"github.com/opencontainers/cgroups"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Changes returns what is written into the cgroup of a container that runs to change its limits. What is 0 or "" stays.
func Changes(r *runtimeapi.LinuxContainerResources, c Cgroups) ([]records.Setting, error) {
	limits, err := limitsOf(r, c)
	if err != nil {
		return nil, err
	}
	last := limits.Memory
	limits.Memory = nil
	all := limits.Settings()
	if c.Unified {
		return slices.Concat(all, changesV2(r), last), nil
	}
	if len(last) > 0 && last[0].File == swapFileV1 { // it is never below memory's limit, whatever that becomes
		all = append(all, records.Setting{File: swapFileV1, Text: "-1"})
	}
	return slices.Concat(all, changesV1(r), last), nil
}

func changesV1(r *runtimeapi.LinuxContainerResources) []records.Setting {
	var all []records.Setting
	for _, s := range []struct {
		file  string
		value int64
	}{
		{"cpu.shares", r.GetCpuShares()},
		{"cpu.cfs_period_us", r.GetCpuPeriod()},
		{"cpu.cfs_quota_us", r.GetCpuQuota()},
		{"memory.limit_in_bytes", r.GetMemoryLimitInBytes()},
	} {
		if s.value != 0 {
			all = append(all, records.Setting{File: s.file, Text: strconv.FormatInt(s.value, 10)})
		}
	}
	return all
}

func changesV2(r *runtimeapi.LinuxContainerResources) []records.Setting {
	var all []records.Setting
	if shares := r.GetCpuShares(); shares != 0 { // the formula of runc, kubelet and the stager itself
		weight := cgroups.ConvertCPUSharesToCgroupV2Value(uint64(max(minShares, min(shares, maxShares))))
		all = append(all, records.Setting{File: "cpu.weight", Text: strconv.FormatUint(weight, 10)})
	}
	if quota := r.GetCpuQuota(); quota != 0 { // kubelet sends no period alone, which cpu.max cannot say
		text := limitText(quota)
		if period := r.GetCpuPeriod(); period != 0 {
			text += fmt.Sprintf(" %d", period)
		}
		all = append(all, records.Setting{File: "cpu.max", Text: text})
	}
	if limit := r.GetMemoryLimitInBytes(); limit != 0 {
		all = append(all, records.Setting{File: "memory.max", Text: limitText(limit)})
	}
	return all
}

// limitText is a limit as version 2 has it; a negative one is none.
func limitText(limit int64) string {
	if limit < 0 {
		return "max"
	}
	return strconv.FormatInt(limit, 10)
}
