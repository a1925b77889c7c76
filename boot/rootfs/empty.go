package rootfs

import (
	"fmt"
	"os"

	"kurma.io/stager/internal/rmtree"
)

// Empty makes an empty folder with the mode, less the umask, and its parents. It removes what
// an earlier pod has left there, of any depth and by whatever app. Nothing must use the folder.
func Empty(folder string, mode os.FileMode) error {
	if err := rmtree.Remove(folder); err != nil {
		return fmt.Errorf("empty folder: %w", err)
	}
	if err := os.MkdirAll(folder, mode); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	return nil
}
