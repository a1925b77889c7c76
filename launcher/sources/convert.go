package sources

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"kurma.io/stager/launcher/images"

	"golang.org/x/sys/unix"
)

// The whiteouts of Docker's and OCI's layers, and their conversion:
//
//	.wh.NAME         hides NAME of the layers below: becomes a character device 0:0 called NAME, or nothing where no
//	                 layer below shows NAME (overlay lists a device in a folder of one layer)
//	.wh..wh..opq     hides its folder's contents in the layers below: becomes the folder's attribute
//	                 trusted.overlay.opaque=y
//
// The stager's drivers overlay and copy read the converted marks (see package unionfs).
const (
	whiteoutPrefix  = ".wh."
	opaqueMark      = ".wh..wh..opq"
	aufsPrefix      = ".wh..wh." // other files of aufs, which are not part of the image
	overlayPrefix   = "trusted.overlay."
	opaqueAttribute = "SCHILY.xattr.trusted.overlay.opaque"
	xattrPrefix     = "SCHILY.xattr."
	rootfs          = "rootfs"
)

// Bounds of the memory that the marks of a layer take: their number, and the bytes of their paths.
const (
	maxMarks     = 1 << 20
	maxMarkBytes = 64 << 20
)

// marks are the paths that a layer hides.
type marks struct {
	whiteouts map[string]bool
	opaque    map[string]bool // folders
	bytes     int             // of all paths
}

// eachEntry calls f with the entries of a layer, each with its path in the root, "." for the root
// itself.
func eachEntry(archive *tar.Reader, f func(header *tar.Header, name string) error) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read layer: %w", err)
		}
		if header.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if len(header.Name) >= unix.PathMax {
			return fmt.Errorf("read layer: a path of %d bytes", len(header.Name))
		}
		if err := f(header, inRoot(header.Name)); err != nil {
			return err
		}
	}
}

// inRoot makes a path relative to the root, where it stays.
func inRoot(name string) string {
	if clean := path.Join("/", name); clean != "/" {
		return clean[1:]
	}
	return "."
}

// note notes what an entry hides.
func (m *marks) note(name string) error {
	dir, base := path.Dir(name), path.Base(name)
	hidden, isWhiteout := strings.CutPrefix(base, whiteoutPrefix)
	switch {
	case base == opaqueMark:
		m.opaque[dir] = true
	case !isWhiteout || strings.HasPrefix(base, aufsPrefix):
		return nil
	case hidden == "" || hidden == "." || hidden == "..":
		return fmt.Errorf("whiteout %q hides nothing", name)
	default:
		m.whiteouts[path.Join(dir, hidden)] = true
	}
	if m.bytes += len(name); m.bytes > maxMarkBytes || len(m.whiteouts)+len(m.opaque) > maxMarks {
		return fmt.Errorf("more than %d hidden paths, or than %d bytes of them", maxMarks, maxMarkBytes)
	}
	return nil
}

// layerWriter writes the image of a layer.
type layerWriter struct {
	image   *images.Writer
	below   *images.Merged // the root of the layers below
	marks   marks
	written map[string]bool // folders
	hidden  map[string]bool // folders, see isHidden
}

// newLayerWriter writes a layer on the layers below, the lowest first. The caller closes the root of these.
func newLayerWriter(image *images.Writer, below []*images.Image) *layerWriter {
	below = slices.Clone(below)
	slices.Reverse(below)
	return &layerWriter{
		image: image, below: images.NewMerged(below),
		marks:   marks{whiteouts: make(map[string]bool), opaque: make(map[string]bool)},
		written: make(map[string]bool), hidden: make(map[string]bool),
	}
}

// layer writes the entries of a layer that archive reads, then what they hide.
func (w *layerWriter) layer(in *images.Stream, archive *tar.Reader) error {
	if err := w.folder("."); err != nil {
		return err
	}
	err := eachEntry(archive, func(header *tar.Header, name string) error {
		content, err := in.Content(header, archive)
		if err != nil {
			return err
		}
		return w.entry(content, header, name)
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.marks.opaque)) {
		if err := w.opaque(name); err != nil {
			return err
		}
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(w.marks.whiteouts))) { // a folder after what is in it
		if err := w.whiteout(name); err != nil {
			return err
		}
	}
	return nil
}

// whiteout writes a whiteout with the folders on the way to it, if a layer below shows what it hides. What the layer
// has in this place hides it, too: a folder becomes opaque.
func (w *layerWriter) whiteout(name string) error {
	switch _, err := w.image.Folder(name); {
	case errors.Is(err, unix.ENOTDIR):
		return nil
	case err == nil:
		return w.opaque(name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := w.above(name); err != nil {
		return err
	}
	if w.isHidden(path.Dir(name)) {
		return nil
	}
	_, err := w.below.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return w.image.Entry(tar.Header{Typeflag: tar.TypeChar, Name: path.Join(rootfs, name)}, nil)
}

// isHidden tells whether the layer hides all that the layers below have in a folder. It notes the answer for each
// folder on the way.
func (w *layerWriter) isHidden(dir string) bool {
	hidden, known := w.hidden[dir]
	if !known {
		hidden = w.marks.opaque[dir] || w.marks.whiteouts[dir] || dir != "." && w.isHidden(path.Dir(dir))
		w.hidden[dir] = hidden
	}
	return hidden
}

// opaque writes a folder again, which then hides what the layers below have in it, or for the first time.
func (w *layerWriter) opaque(name string) error {
	header, err := w.image.Folder(name)
	switch {
	case errors.Is(err, unix.ENOTDIR):
		return nil // what is there hides the layers below
	case errors.Is(err, fs.ErrNotExist):
		if err = w.above(path.Join(name, "x")); err == nil {
			header, err = w.image.Folder(name)
		}
	}
	if err != nil {
		return err
	}
	header.Name = path.Join(rootfs, name)
	header.PAXRecords = map[string]string{opaqueAttribute: "y"}
	return w.image.Entry(header, nil)
}

// above writes the folders on the way to a file.
func (w *layerWriter) above(name string) error {
	dir := path.Dir(name)
	if w.written[dir] {
		return nil
	}
	if dir != "." {
		if err := w.above(dir); err != nil {
			return err
		}
	}
	return w.folder(dir)
}

// missingFolder writes the working directory of an image if its layers lack it, and the folders on the way: Docker
// makes them, also where symbolic links lead. What is beyond a file, or a loop of links, stays as it is.
func (w *layerWriter) missingFolder(dir string) error {
	dir, err := w.below.Resolve(dir)
	if err != nil {
		return nil //nolint:nilerr // a start with this working directory reports it
	}
	dir = inRoot(dir)
	at := ""
	for part := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, part)
		info, err := w.below.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return w.above(path.Join(dir, "x"))
		}
		if err != nil || !info.IsDir() {
			return err
		}
	}
	return nil
}

// maxLinks is how many symbolic links may be on the way to a file, as in the kernel.
const maxLinks = 40

// follow returns where an entry belongs: as for tar, a symbolic link of the same layer on the way to it leads to
// another folder, within the root. A link of a layer below does not: overlay would not follow it, and the layer's
// folder takes its place.
func (w *layerWriter) follow(name string) (string, error) {
	if name == "." {
		return name, nil
	}
	links := maxLinks
	dir, err := w.followFolder(path.Dir(name), &links)
	return path.Join(dir, path.Base(name)), err
}

func (w *layerWriter) followFolder(dir string, links *int) (string, error) {
	if dir == "." || w.written[dir] {
		return dir, nil
	}
	parent, err := w.followFolder(path.Dir(dir), links)
	if err != nil {
		return "", err
	}
	at := path.Join(parent, path.Base(dir))
	if w.written[at] {
		return at, nil
	}
	target := w.image.Readlink(at)
	if target == "" {
		return at, nil
	}
	if *links--; *links < 0 {
		return "", fmt.Errorf("path passes through more than %d symbolic links", maxLinks)
	}
	if !path.IsAbs(target) {
		target = path.Join(parent, target)
	}
	return w.followFolder(inRoot(target), links)
}

// folder writes a folder with the owner, mode and time that it has in the layers below, because it covers theirs.
func (w *layerWriter) folder(name string) error {
	header := &tar.Header{Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(0, 0)}
	info, err := w.below.Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && info.IsDir() {
		st := info.Sys().(*syscall.Stat_t)
		header.Mode, header.Uid, header.Gid = int64(st.Mode&0o7777), int(st.Uid), int(st.Gid)
		header.ModTime = info.ModTime()
	}
	return w.write(nil, header, name)
}

// write writes an entry.
func (w *layerWriter) write(content io.Reader, header *tar.Header, name string) error {
	out := tar.Header{
		Typeflag: header.Typeflag, Name: path.Join(rootfs, name), Linkname: header.Linkname, Size: header.Size,
		Mode: header.Mode,
		Uid:  header.Uid, Gid: header.Gid, ModTime: header.ModTime, Devmajor: header.Devmajor, Devminor: header.Devminor,
		PAXRecords: make(map[string]string),
	}
	for key, value := range header.PAXRecords {
		if attr, isAttr := strings.CutPrefix(key, xattrPrefix); isAttr && !strings.HasPrefix(attr, overlayPrefix) {
			out.PAXRecords[key] = value
		}
	}
	w.written[name] = header.Typeflag == tar.TypeDir
	switch header.Typeflag {
	case tar.TypeDir:
		out.Size = 0
	case tar.TypeLink:
		target, err := w.follow(inRoot(header.Linkname))
		if err != nil {
			return err
		}
		out.Linkname = path.Join(rootfs, target)
	case tar.TypeGNUSparse:
		out.Typeflag = tar.TypeReg
	}
	return w.image.Entry(out, content)
}

// entry writes an entry of the layer, or notes what it hides.
func (w *layerWriter) entry(content io.Reader, header *tar.Header, name string) error {
	name, err := w.follow(name)
	if err != nil {
		return err
	}
	if strings.HasPrefix(path.Base(name), whiteoutPrefix) {
		return w.marks.note(name)
	}
	if name != "." {
		if err := w.above(name); err != nil {
			return err
		}
	}
	return w.write(content, header, name)
}
