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

// parseShare reads a resource that can be requested and limited. If the request is omitted, it
// is the limit.
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

// Rate reads the value of an isolator that limits a resource on every device, such as resource/network-bandwidth,
// and returns the limit in units a second.
func Rate(value json.RawMessage) (uint64, error) {
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

func (i *applier) cpu(value json.RawMessage) (verdict, error) {
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
			return change("the maximum is %d shares", maxShares)
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

// faster reports whether a's quota allows more CPU time than b's.
func faster(a, b spec.Resources) bool {
	return float64(a.CPUQuota)/float64(a.CPUPeriod) > float64(b.CPUQuota)/float64(b.CPUPeriod)
}

// quotaOf converts thousandths of a core to a quota in a period, both in microseconds.
func quotaOf(millis int64) (quota int64, period uint64) {
	if millis*cpuPeriod/1000 >= minCPUQuota {
		return millis * cpuPeriod / 1000, cpuPeriod
	}
	return millis * longCPUPeriod / 1000, longCPUPeriod
}

// sharesOf converts thousandths of a core to shares. A whole core is 1024 shares, the kernel's
// default.
func sharesOf(millis int64) uint64 {
	const most = maxShares * 1000 / 1024
	return uint64(max(minShares, min(millis, most)*1024/1000))
}

func (i *applier) cpuShares(value json.RawMessage) (verdict, error) {
	var shares int64
	if err := whole(value, &shares, minShares, maxShares); err != nil {
		return verdict{}, err
	}
	if !i.machine.CPULimits {
		return ignore(noCPULimits)
	}
	i.shares = uint64(shares)
	return verdict{}, nil
}

func (i *applier) memory(value json.RawMessage) (verdict, error) {
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
		return change("with cgroup v2 the request protects the app only from the pod's other apps, " +
			"and only if the pod has a limit")
	}
	return verdict{}, nil
}

func blockBandwidthOf(r *spec.Resources) *uint64 { return &r.BlockBandwidth }
func blockIOPSOf(r *spec.Resources) *uint64      { return &r.BlockIOPS }

// blockLimit applies the limit of block devices that of points to.
func blockLimit(of func(*spec.Resources) *uint64) func(*applier, json.RawMessage) (verdict, error) {
	return func(i *applier, value json.RawMessage) (verdict, error) {
		rate, err := Rate(value)
		if err != nil {
			return verdict{}, err
		}
		limit := of(i.resources())
		*limit = rate
		return i.blockVerdict(limit, *of(&i.pod.Resources))
	}
}

// blockVerdict bounds a limit of block devices. pods is the limit of the app's pod, 0 for none.
func (i *applier) blockVerdict(limit *uint64, pods uint64) (verdict, error) {
	switch {
	case i.machine.BlockLimits == spec.NoBlockLimits:
		*limit = 0
		return ignore("this machine's cgroups do not limit block devices")
	case !i.forPod && pods != 0 && *limit > pods:
		*limit = pods
		return change("the pod's limit of %d is lower and bounds it", pods)
	case i.machine.BlockLimits == spec.DirectBlockLimits && i.forPod:
		return change("cgroup v1 limits each app, not their sum, and does not count writes through the page cache")
	case i.machine.BlockLimits == spec.DirectBlockLimits:
		return change("cgroup v1 does not count writes through the page cache")
	}
	return verdict{}, nil
}

// inheritBlockLimits sets the pod's limits for an app that has none: on cgroup v1 the limits of
// a cgroup do not apply to the cgroups below it.
func (i *applier) inheritBlockLimits() {
	r := &i.app.Resources
	r.BlockBandwidth = least(r.BlockBandwidth, i.pod.Resources.BlockBandwidth)
	r.BlockIOPS = least(r.BlockIOPS, i.pod.Resources.BlockIOPS)
}

// minNetworkRate is the lowest rate that the kernel's arithmetic can handle, in bytes a second.
const minNetworkRate = 1 << 10

// least returns the lower of two limits; 0 means no limit.
func least(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

func (i *applier) networkBandwidth(value json.RawMessage) (verdict, error) {
	rate, err := Rate(value)
	if err != nil {
		return verdict{}, err
	}
	out := &i.app.NetworkBandwidth
	switch {
	case i.pod.Namespaces.HostNet:
		return ignore("the pod shares the machine's network")
	case i.forPod:
		out = &i.pod.NetworkBandwidth
	case !i.pod.OneApp:
		return ignore("the pod's apps share its network, so the limit cannot apply to one app; limit the pod instead")
	}
	if *out = max(rate, minNetworkRate); rate < minNetworkRate {
		return change("the minimum is %d bytes a second", minNetworkRate)
	}
	if pod := i.pod.NetworkBandwidth; !i.forPod && pod != 0 && rate > pod {
		return change("the pod's limit of %d is lower and bounds it", pod)
	}
	return verdict{}, nil
}
