package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
)

// defaultHosts is for an image that has no /etc/hosts (appc, OS-SPEC.md).
const defaultHosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"

// PodHosts returns the lines of /etc/hosts by which the pod's apps find the pod's name: its addresses, without
// those that only this machine knows, or 127.0.0.1 if it has no other; nil if the pod has no name of its own.
func PodHosts(hostname string, addresses []net.Addr) []byte {
	if hostname == "" {
		return nil
	}
	var lines []byte
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
			lines = fmt.Appendf(lines, "%s\t%s\n", prefix.Addr(), hostname)
		}
	}
	if lines == nil {
		lines = fmt.Appendf(nil, "127.0.0.1\t%s\n", hostname)
	}
	return lines
}

// AddEtcFiles writes resolver, empty or not, to /etc/resolv.conf in an app's new root, and adds hosts with the pod's
// own lines, hostname and mtab if the image does not have them or has empty files. If resolver is nil it adds no
// resolv.conf, and if hostname is empty no hostname. AddEtcFiles resolves the image's symbolic links inside the root,
// as the app would, so none leads out of it. It replaces a symbolic link in place of a file.
func AddEtcFiles(rootfs string, resolver []byte, hostname string, hosts []byte) error {
	etc, err := makeFolder(rootfs, "etc")
	if err != nil {
		return fmt.Errorf("open /etc: %w", err)
	}
	defer etc.Close()
	if resolver != nil {
		if err := replaceFile(etc, "resolv.conf", resolver); err != nil {
			return err
		}
	}
	if err := addFile(etc, "hosts", append([]byte(defaultHosts), hosts...)); err != nil {
		return err
	}
	if hostname != "" {
		if err := addFile(etc, "hostname", []byte(hostname+"\n")); err != nil {
			return err
		}
	}
	if _, err := etc.Lstat("mtab"); errors.Is(err, fs.ErrNotExist) {
		return etc.Symlink("/proc/mounts", "mtab")
	}
	return nil
}

const etcMode = 0o644

func replaceFile(root *os.Root, name string, data []byte) error {
	if err := root.RemoveAll(name); err != nil {
		return fmt.Errorf("replace /etc/%s: %w", name, err)
	}
	return writeNew(root, name, data, etcMode)
}

// addFile writes the file if the image has nothing of that name but perhaps an empty file: a builder of images, such as
// buildah, leaves one where it has mounted its own.
func addFile(root *os.Root, name string, data []byte) error {
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writeNew(root, name, data, etcMode)
	case err == nil && info.Mode().IsRegular() && info.Size() == 0:
		return replaceFile(root, name, data)
	}
	return err
}
