package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/cri/records"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Cgroups is what the cgroups of the machine can limit.
type Cgroups struct {
	Unified bool                   // cgroup v2 alone
	Has     func(file string) bool // whether a cgroup has a file
}

// limitsOf returns the limits for which there is no isolator.
func limitsOf(r *runtimeapi.LinuxContainerResources, c Cgroups) (records.Limits, error) {
	l := records.Limits{CPUs: r.GetCpusetCpus(), Mems: r.GetCpusetMems(), Unified: r.GetUnified()}
	if len(l.Unified) > 0 && !c.Unified {
		return l, refuse("limits of cgroup v2 (unified) on a machine with cgroup v1")
	}
	for key := range l.Unified {
		if strings.ContainsAny(key, "/\x00") || !strings.Contains(key, ".") || strings.HasPrefix(key, "cgroup.") {
			return l, refuse("limit %q of cgroup v2", key)
		}
	}
	swap, err := swapOf(r, c)
	if err != nil {
		return l, err
	}
	pages, err := hugePagesOf(r, c)
	l.Memory = append(swap, pages...)
	return l, err
}

// defaultPeriod is the kernel's period of a quota of CPU time, and that of the stager's isolator, in microseconds.
const defaultPeriod = 100_000

// quotaOf returns a quota of CPU time in another period. In version 1 the two are in the order in which neither allows
// more for a moment: the cgroup around may have the same quota.
func quotaOf(r *runtimeapi.LinuxContainerResources, c Cgroups) []records.Setting {
	quota, period := r.GetCpuQuota(), r.GetCpuPeriod()
	if quota <= 0 || period <= 0 || period == defaultPeriod {
		return nil
	}
	if c.Unified {
		return []records.Setting{{File: "cpu.max", Text: fmt.Sprintf("%d %d", quota, period)}}
	}
	all := []records.Setting{
		{File: "cpu.cfs_quota_us", Text: strconv.FormatInt(quota, 10)},
		{File: "cpu.cfs_period_us", Text: strconv.FormatInt(period, 10)},
	}
	if period > defaultPeriod {
		slices.Reverse(all)
	}
	return all
}

const swapFileV1 = "memory.memsw.limit_in_bytes"

// swapOf returns the limit of swap: in version 1 that of memory and swap together, as the CRI has it. Without
// accounting of swap in the kernel, memory's limit is all that a container without swap can have.
func swapOf(r *runtimeapi.LinuxContainerResources, c Cgroups) ([]records.Setting, error) {
	total, memory := r.GetMemorySwapLimitInBytes(), r.GetMemoryLimitInBytes()
	s := records.Setting{File: swapFileV1, Text: strconv.FormatInt(total, 10)}
	if c.Unified {
		s = records.Setting{File: "memory.swap.max", Text: strconv.FormatInt(total-memory, 10)}
	}
	switch {
	case total <= 0:
		return nil, nil
	case memory <= 0 || total < memory:
		return nil, refuse("limit of memory and swap of %d bytes with a limit of memory of %d", total, memory)
	case c.Has(s.File):
		return []records.Setting{s}, nil
	case total == memory:
		return nil, nil
	}
	return nil, refuse("swap: the kernel's cgroups have no %s", s.File)
}

// hugePagesOf returns the limits of huge pages. Where the cgroups have none, a limit of 0 is left out: kubelet sets it
// for each size.
func hugePagesOf(r *runtimeapi.LinuxContainerResources, c Cgroups) ([]records.Setting, error) {
	size := regexp.MustCompile(`^[1-9][0-9]*[KMG]B$`)
	file := ".limit_in_bytes"
	if c.Unified {
		file = ".max"
	}
	var all []records.Setting
	for _, h := range r.GetHugepageLimits() {
		s := records.Setting{File: "hugetlb." + h.GetPageSize() + file, Text: strconv.FormatUint(h.GetLimit(), 10)}
		switch {
		case !size.MatchString(h.GetPageSize()):
			return nil, refuse("size %q of huge pages", h.GetPageSize())
		case c.Has(s.File):
			all = append(all, s)
		case h.GetLimit() > 0:
			return nil, refuse("huge pages: the kernel's cgroups have no %s", s.File)
		}
	}
	return all, nil
}
