package container

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	devices "github.com/opencontainers/cgroups/devices/config"
)

// hostDevices returns the device nodes that the kernel has made in the machine's /dev (DEVNAME in
// each uevent file of sysfs's dev/char and dev/block), for a privileged container. It omits the
// nodes that a container's own /dev has: terminals of devpts, the console, and the default
// devices in have.
func hostDevices(sys string, have []*devices.Device) ([]*devices.Device, error) {
	taken := map[string]bool{"/dev/ptmx": true, "/dev/console": true, "/dev/tty": true}
	for _, d := range have {
		taken[d.Path] = true
	}
	var found []*devices.Device
	for kind, folder := range map[devices.Type]string{devices.CharDevice: "char", devices.BlockDevice: "block"} {
		dir := filepath.Join(sys, "dev", folder)
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a kernel without such devices, or a caller without sysfs
		}
		if err != nil {
			return nil, fmt.Errorf("list the machine's devices: %w", err)
		}
		for _, entry := range entries {
			d, ok := deviceNode(kind, filepath.Join(dir, entry.Name(), "uevent"))
			if ok && !taken[d.Path] {
				found = append(found, d)
			}
		}
	}
	slices.SortFunc(found, func(a, b *devices.Device) int { return strings.Compare(a.Path, b.Path) })
	return found, nil
}

// deviceNode reads a uevent file. It returns false for a device without a node, for a device that
// no longer exists, and for a name that leads out of /dev.
func deviceNode(kind devices.Type, uevent string) (*devices.Device, bool) {
	f, err := os.Open(uevent)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	rule := devices.Rule{Type: kind, Major: -1, Minor: -1, Permissions: "rwm", Allow: true}
	d := &devices.Device{FileMode: 0o600, Rule: rule}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		switch key {
		case "MAJOR":
			d.Major, err = strconv.ParseInt(value, 10, 64)
		case "MINOR":
			d.Minor, err = strconv.ParseInt(value, 10, 64)
		case "DEVMODE":
			var mode uint64
			mode, err = strconv.ParseUint(value, 8, 9)
			d.FileMode = os.FileMode(mode)
		case "DEVNAME":
			d.Path = filepath.Join("/dev", filepath.Clean("/"+value))
		}
		if err != nil {
			return nil, false
		}
	}
	return d, strings.HasPrefix(d.Path, "/dev/") && !strings.HasPrefix(d.Path, "/dev/pts/") && d.Major >= 0 && d.Minor >= 0
}
