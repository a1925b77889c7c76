package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"kurma.io/stager/spec"
)

// The isolators that are limits of a cgroup (appc, ace.md, Resource Isolators).

// resource is the value of a resource isolator.
type resource struct {
	Default bool
	Request *quantity
	Limit   *quantity
}

var errResource = errors.New(`must be an object such as {"request": "250m", "limit": "500m"}`)

func parseResource(value json.RawMessage) (resource, error) {
	var fields struct {
		Default        bool
		Request, Limit json.RawMessage
	}
	if json.Unmarshal(value, &fields) != nil {
		return resource{}, errResource
	}
	r := resource{Default: fields.Default}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		to   **quantity
	}{{"request", fields.Request, &r.Request}, {"limit", fields.Limit, &r.Limit}} {
		if len(part.raw) == 0 || string(part.raw) == "null" {
			continue
		}
		q, err := parseQuantity(part.raw)
		if err != nil {
			return r, fmt.Errorf("%s %w", part.name, err)
		}
		if q.milli.Sign() <= 0 {
			return r, fmt.Errorf("%s must be above 0", part.name)
		}
		*part.to = &q
	}
	return r, nil
}

// parseShare reads a resource that is requested and limited. A request that is
// omitted is the limit.
func parseShare(value json.RawMessage) (resource, error) {
	r, err := parseResource(value)
	switch {
	case err != nil:
		return r, err
	case r.Default:
		return r, errors.New("default must be false")
	case r.Request == nil && r.Limit == nil:
		return r, errors.New("must have a request, a limit or both")
	case r.Request == nil:
		r.Request = r.Limit
	case r.Limit != nil && r.Request.milli.Cmp(r.Limit.milli) > 0:
		return r, errors.New("request must not be above limit")
	}
	return r, nil
}

// parseRate reads a resource that is limited on every device.
func parseRate(value json.RawMessage) (uint64, error) {
	r, err := parseResource(value)
	switch {
	case err != nil:
		return 0, err
	case !r.Default:
		return 0, errors.New("default must be true")
	case r.Request != nil:
		return 0, errors.New("request must be absent")
	case r.Limit == nil:
		return 0, errors.New("limit must be present")
	}
	return uint64(r.Limit.units()), nil
}

const (
	cpuPeriod     = 100_000   // microseconds, the kernel's default
	longCPUPeriod = 1_000_000 // the longest that the kernel takes
	minCPUQuota   = 1_000     // the least that the kernel takes
	maxCPUMillis  = 1_000_000_000
	minShares     = 2 // of cgroup v1's cpu.shares
	maxShares     = 262_144

	noCPULimits = "this machine's cgroups do not limit CPU time"
)

func (i *isolation) cpu(value json.RawMessage) (verdict, error) {
	r, err := parseShare(value)
	if err != nil {
		return verdict{}, err
	}
	if r.Limit != nil && r.Limit.millis() > maxCPUMillis {
		return verdict{}, errors.New("limit must be at most a million cores")
	}
	if !i.machine.CPULimits {
		return ignore(noCPULimits)
	}
	out := i.resources()
	out.CPUShares, out.CPUQuota, out.CPUPeriod = sharesOf(r.Request.millis()), 0, 0
	i.cpuRequested = r.Request != r.Limit
	if r.Limit == nil {
		if out.CPUShares == maxShares {
			return change("%d shares are the most that can be had", maxShares)
		}
		return verdict{}, nil
	}
	millis := r.Limit.millis()
	out.CPUQuota, out.CPUPeriod = quotaOf(millis)
	if pod := i.pod.Resources; !i.forPod && pod.CPUQuota != 0 && faster(*out, pod) {
		out.CPUQuota, out.CPUPeriod = pod.CPUQuota, pod.CPUPeriod
		return change("the pod's limit is lower and bounds it")
	}
	return verdict{}, nil
}

// faster says whether a's quota lets it run more than b's.
func faster(a, b spec.Resources) bool {
	return float64(a.CPUQuota)/float64(a.CPUPeriod) > float64(b.CPUQuota)/float64(b.CPUPeriod)
}

// quotaOf turns thousandths of a core into a quota in a period, both in
// microseconds.
func quotaOf(millis int64) (quota int64, period uint64) {
	if millis*cpuPeriod/1000 >= minCPUQuota {
		return millis * cpuPeriod / 1000, cpuPeriod
	}
	return millis * longCPUPeriod / 1000, longCPUPeriod
}

// sharesOf gives a whole core 1024 shares, which is what a cgroup has that
// nobody has given any.
func sharesOf(millis int64) uint64 {
	const most = maxShares * 1000 / 1024
	return uint64(max(minShares, min(millis, most)*1024/1000))
}

func (i *isolation) cpuShares(value json.RawMessage) (verdict, error) {
	var shares int64
	if json.Unmarshal(value, &shares) != nil || shares < minShares || shares > maxShares {
		return verdict{}, fmt.Errorf("must be a whole number from %d to %d", minShares, maxShares)
	}
	if !i.machine.CPULimits {
		return ignore(noCPULimits)
	}
	i.shares = uint64(shares)
	return verdict{}, nil
}

func (i *isolation) memory(value json.RawMessage) (verdict, error) {
	r, err := parseShare(value)
	if err != nil {
		return verdict{}, err
	}
	if !i.machine.MemoryLimits {
		return ignore("this machine's cgroups do not limit memory")
	}
	out := i.resources()
	out.MemoryRequest = r.Request.units()
	out.MemoryLimit = 0
	if r.Limit != nil {
		out.MemoryLimit = r.Limit.units()
	}
	if pod := i.pod.Resources.MemoryLimit; !i.forPod && pod != 0 && max(out.MemoryLimit, out.MemoryRequest) > pod {
		out.MemoryLimit, out.MemoryRequest = min(out.MemoryLimit, pod), min(out.MemoryRequest, pod)
		return change("the pod's limit of %d bytes is lower and bounds it", pod)
	}
	if r.Request != r.Limit && !i.machine.MemoryRequests {
		return change("with cgroup v2 the request protects from the pod's other apps where the pod has a limit, and from nobody else")
	}
	return verdict{}, nil
}

func (i *isolation) blockBandwidth(value json.RawMessage) (verdict, error) {
	rate, err := parseRate(value)
	if err != nil {
		return verdict{}, err
	}
	out := i.resources()
	out.BlockBandwidth = rate
	return i.blockLimit(&out.BlockBandwidth, i.pod.Resources.BlockBandwidth)
}

func (i *isolation) blockIOPS(value json.RawMessage) (verdict, error) {
	rate, err := parseRate(value)
	if err != nil {
		return verdict{}, err
	}
	out := i.resources()
	out.BlockIOPS = rate
	return i.blockLimit(&out.BlockIOPS, i.pod.Resources.BlockIOPS)
}

// blockLimit says what becomes of a limit of block devices, which an app's pod
// may have, too.
func (i *isolation) blockLimit(limit *uint64, pods uint64) (verdict, error) {
	switch {
	case i.machine.BlockLimits == spec.NoBlockLimits:
		*limit = 0
		return ignore("this machine's cgroups do not limit block devices")
	case !i.forPod && pods != 0 && *limit > pods:
		*limit = pods
		return change("the pod's limit of %d is lower and bounds it", pods)
	case i.machine.BlockLimits == spec.DirectBlockLimits && i.forPod:
		return change("cgroup v1 bounds each app by it, not their sum, and nothing that is written through the page cache")
	case i.machine.BlockLimits == spec.DirectBlockLimits:
		return change("cgroup v1 does not count what is written through the page cache")
	}
	return verdict{}, nil
}

// inheritBlockLimits gives an app the pod's limits where it has none of its
// own: cgroup v1 does not bound by the parent's.
func (i *isolation) inheritBlockLimits() {
	r := &i.app.Resources
	r.BlockBandwidth = least(r.BlockBandwidth, i.pod.Resources.BlockBandwidth)
	r.BlockIOPS = least(r.BlockIOPS, i.pod.Resources.BlockIOPS)
}

// minNetworkRate is the smallest rate that the kernel's arithmetic takes, in bytes a second.
const minNetworkRate = 1 << 10

// least is the lower of two limits, of which 0 is none.
func least(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

func (i *isolation) networkBandwidth(value json.RawMessage) (verdict, error) {
	rate, err := parseRate(value)
	if err != nil {
		return verdict{}, err
	}
	out := &i.app.NetworkBandwidth
	switch {
	case i.forPod && i.pod.Namespaces.HostNet:
		return ignore("the pod shares the machine's network")
	case i.forPod:
		out = &i.pod.NetworkBandwidth
	case i.pod.Namespaces.HostNet:
		return ignore("the pod shares the machine's network")
	case !i.pod.OneApp:
		return ignore("the pod's apps share its network, where their traffic cannot be told apart; the pod can be limited")
	}
	if *out = max(rate, minNetworkRate); rate < minNetworkRate {
		return change("%d bytes a second is the least that can be had", minNetworkRate)
	}
	if pod := i.pod.NetworkBandwidth; !i.forPod && pod != 0 && rate > pod {
		return change("the pod's limit of %d is lower and bounds it", pod)
	}
	return verdict{}, nil
}
