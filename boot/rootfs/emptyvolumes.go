package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"kurma.io/stager/plan"
)

// MakeEmptyVolumes makes the folders of empty volumes that do not exist yet, with the mode and
// owner of the volume regardless of the umask, or mounts the folder there that the daemon has made for the volume.
func MakeEmptyVolumes(volumes []plan.EmptyVolume) error {
	for _, v := range volumes {
		if err := os.MkdirAll(filepath.Dir(v.Path), 0o711); err != nil {
			return fmt.Errorf("make empty volume: %w", err)
		}
		err := os.Mkdir(v.Path, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err == nil {
			err = fillIn(v)
		}
		if err != nil {
			return fmt.Errorf("make empty volume: %w", err)
		}
	}
	return nil
}

// fillIn makes the new folder at the volume's path the volume.
func fillIn(v plan.EmptyVolume) error {
	if v.Given == "" {
		return errors.Join(os.Chown(v.Path, v.UID, v.GID), unix.Chmod(v.Path, v.Mode))
	}
	if err := unix.Mount(v.Given, v.Path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s, which stagerConfig.podVolumes names: %w", v.Given, err)
	}
	return nil
}
