package spec

import "strings"

// DevFolder is the folder of devices. A runtime makes neither mounts nor nodes in a container's mount at it.
const DevFolder = "/dev"

// Reserved returns the reserved path that a mount target is at or below, or "" for an allowed
// target. The runtime needs its own mounts at reserved paths: with a volume over /proc, the
// runtime would write its protections to files that the volume's author chose (CVE-2019-16884).
func Reserved(target string) string {
	if target == "/" {
		return target
	}
	for _, folder := range []string{"/proc", "/dev/pts"} {
		if target == folder || Inside(target, folder) {
			return folder
		}
	}
	return ""
}

// Inside reports whether the cleaned path p is below folder.
func Inside(p, folder string) bool {
	return strings.HasPrefix(p, strings.TrimSuffix(folder, "/")+"/")
}

// SystemFolders returns the folders of a root on which a runtime mounts the file systems of appc's
// Linux environment (OS-SPEC.md). A runtime refuses a root in which one of them is a symbolic link: with a volume
// where a linked /dev leads, the runtime would make device nodes in the volume (CVE-2026-41579).
func SystemFolders() []string { return []string{"/proc", DevFolder, "/sys"} }
