package rootfs

import (
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// CheckSources checks the sources of host volumes, and returns the devices among them that the app may use. lstat is
// os.Lstat. If a source is missing or is a symbolic link, the error names the volume and the path.
func CheckSources(sources []plan.Source, lstat func(string) (fs.FileInfo, error)) ([]spec.Device, error) {
	var devices []spec.Device
	for _, s := range sources {
		info, err := lstat(s.Path)
		if err != nil {
			return nil, fmt.Errorf("find source of volume %q: %w", s.Volume, err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("source of volume %q is a symbolic link: %s", s.Volume, s.Path)
		}
		if d, ok := deviceOf(info); ok && s.MayBeDevice {
			if d.Access = "rw"; s.ReadOnly {
				d.Access = "r"
			}
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// OpenDevices returns the mounts; the app may open a device that it may use, whatever stagerConfig's volumeFlags say
// of the nodes in volumes: such a volume has been given to the app as a device. lstat is os.Lstat.
func OpenDevices(
	mounts []spec.Mount, sources []plan.Source, lstat func(string) (fs.FileInfo, error),
) []spec.Mount {
	mounts = slices.Clone(mounts)
	for i := range mounts {
		given := func(s plan.Source) bool { return s.Path == mounts[i].Source && s.MayBeDevice }
		info, err := lstat(mounts[i].Source)
		if err == nil && info.Mode()&fs.ModeDevice != 0 && slices.ContainsFunc(sources, given) {
			mounts[i].NoDev = false
		}
	}
	return mounts
}

func deviceOf(info fs.FileInfo) (spec.Device, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || info.Mode()&fs.ModeDevice == 0 {
		return spec.Device{}, false
	}
	d := spec.Device{Type: 'b', Major: int64(unix.Major(stat.Rdev)), Minor: int64(unix.Minor(stat.Rdev))}
	if info.Mode()&fs.ModeCharDevice != 0 {
		d.Type = 'c'
	}
	return d, true
}
