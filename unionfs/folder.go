package unionfs

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// CopyFolder makes the empty folder dst a copy of src, a folder of an assembled root, which is open for reading:
// owner, mode, times, extended attributes and contents. Hard links within src and holes stay. Symbolic links are
// copied and never followed. Devices are left out. src must not change meanwhile. After an error dst has a part of
// the copy. For a root that is not assembled, below are the same folder in further layers, the topmost first.
func CopyFolder(ctx context.Context, dst string, src *os.File, below ...*os.File) error {
	out, err := os.OpenFile(dst, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer out.Close()
	c := &copier{ctx: ctx, top: int(out.Fd()), markers: dropped, links: map[inode]string{}}
	var sources []source
	defer func() { closeSources(sources) }()
	for i, layer := range append([]*os.File{src}, below...) {
		in, err := openDirAt(layer, ".")
		if err != nil {
			return err
		}
		c.layers, sources = append(c.layers, Layer{Dir: layer.Name()}), append(sources, source{i, in})
	}
	if err := c.copyDirectory("", c.top, sources); err != nil {
		return err
	}
	return folderAttributes(out, src)
}
