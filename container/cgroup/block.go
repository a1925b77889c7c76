package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/opencontainers/cgroups"

	"kurma.io/stager/spec"
)

// BlockDevices returns the numbers of the machine's block devices, without partitions: a limit
// applies to a whole device. sys is the path of sysfs.
func BlockDevices(sys string) ([][2]int64, error) {
	entries, err := os.ReadDir(filepath.Join(sys, "block"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list block devices: %w", err)
	}
	var out [][2]int64
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(sys, "block", e.Name(), "dev"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // no longer there, or a path of a multipath device, which has no node
		}
		if err != nil {
			return nil, fmt.Errorf("list block devices: %w", err)
		}
		var d [2]int64
		if _, err := fmt.Sscanf(string(text), "%d:%d", &d[0], &d[1]); err != nil {
			return nil, fmt.Errorf("list block devices: %s: %q: %w", e.Name(), text, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// throttle limits reads and writes of each device.
func throttle(r spec.Resources, out *cgroups.Resources, devices [][2]int64) {
	// Version 1 truncates a larger number of operations to 32 bits; this one means no limit.
	iops := min(r.BlockIOPS, math.MaxUint32)
	for _, d := range devices {
		if r.BlockBandwidth > 0 {
			rule := cgroups.NewThrottleDevice(d[0], d[1], r.BlockBandwidth)
			out.BlkioThrottleReadBpsDevice = append(out.BlkioThrottleReadBpsDevice, rule)
			out.BlkioThrottleWriteBpsDevice = append(out.BlkioThrottleWriteBpsDevice, rule)
		}
		if iops > 0 {
			rule := cgroups.NewThrottleDevice(d[0], d[1], iops)
			out.BlkioThrottleReadIOPSDevice = append(out.BlkioThrottleReadIOPSDevice, rule)
			out.BlkioThrottleWriteIOPSDevice = append(out.BlkioThrottleWriteIOPSDevice, rule)
		}
	}
}

// LimitBlockDevices adds rules for the devices that the machine has now.
func LimitBlockDevices(r spec.Resources, out *cgroups.Resources) error {
	if r.BlockBandwidth == 0 && r.BlockIOPS == 0 {
		return nil
	}
	devices, err := BlockDevices("/sys")
	if err != nil {
		return err
	}
	throttle(r, out, devices)
	return nil
}
