// Package build makes App Container images (ACI): a tar of "manifest" and
// "rootfs/", compressed with gzip. The same entries and manifest give the same bytes,
// on every machine, at any time, for every user.
package build

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// Entry is one file of an image's root.
type Entry struct {
	// Name is the path below the root, without a leading slash; "" is the
	// root itself.
	Name string

	Type     byte        // one of archive/tar's Type constants
	Mode     os.FileMode // permission, setuid, setgid and sticky bits
	UID, GID int

	Source string // of a regular file: the host's path to read it from
	Size   int64  // of a regular file
	Link   string // of a symlink: its target; of a hard link: the Name of the first link

	DevMajor, DevMinor int64
	Xattrs             map[string]string
}

// Write writes an image. It sorts the entries by the elements of their names, so that folders come
// before their contents, and files before the links to them. A root that is not listed is 0755,
// 0:0. Write does not parse or change the manifest. Every file's time is the epoch.
func Write(w io.Writer, manifest []byte, entries []Entry) error {
	zip := gzip.NewWriter(w)
	if err := WriteTar(zip, manifest, entries); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

// WriteTar is Write without the compression.
func WriteTar(w io.Writer, manifest []byte, entries []Entry) error {
	archive := tar.NewWriter(w)
	if err := writeManifest(archive, manifest); err != nil {
		return fmt.Errorf("write image manifest: %w", err)
	}
	for _, e := range ordered(entries) {
		if err := writeEntry(archive, e); err != nil {
			return fmt.Errorf("write image file /%s: %w", e.Name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

func ordered(entries []Entry) []Entry {
	sorted := slices.Clone(entries)
	if !slices.ContainsFunc(sorted, func(e Entry) bool { return e.Name == "" }) {
		sorted = append(sorted, Entry{Type: tar.TypeDir, Mode: 0o755})
	}
	slices.SortFunc(sorted, func(a, b Entry) int { return slices.Compare(parts(a.Name), parts(b.Name)) })
	return sorted
}

// parts splits a name into its elements. Tree also orders names by elements, and makes the first
// name of a file the one that its hard links refer to: in the order of bytes, a link "d-x" would
// come before its file "d/f".
func parts(name string) []string { return strings.Split(name, "/") }

func writeManifest(archive *tar.Writer, manifest []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     "manifest",
		Mode:     0o644,
		Size:     int64(len(manifest)),
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatPAX,
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(manifest)
	return err
}

func writeEntry(archive *tar.Writer, e Entry) error {
	if err := archive.WriteHeader(header(e)); err != nil {
		return err
	}
	if e.Type != tar.TypeReg || e.Size == 0 {
		return nil
	}
	file, err := os.Open(e.Source)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}

func header(e Entry) *tar.Header {
	h := &tar.Header{
		Typeflag: e.Type,
		Name:     path.Join("rootfs", e.Name),
		Linkname: e.Link,
		Mode:     tarMode(e.Mode),
		Uid:      e.UID,
		Gid:      e.GID,
		Devmajor: e.DevMajor,
		Devminor: e.DevMinor,
		ModTime:  time.Unix(0, 0),
		Format:   tar.FormatPAX,
	}
	switch e.Type {
	case tar.TypeDir:
		h.Name += "/"
	case tar.TypeReg:
		h.Size = e.Size
	case tar.TypeLink:
		h.Linkname = path.Join("rootfs", e.Link)
	}
	for name, value := range e.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = make(map[string]string)
		}
		h.PAXRecords["SCHILY.xattr."+name] = value
	}
	return h
}

// tarMode returns the mode as tar writes it: the low twelve bits.
func tarMode(mode os.FileMode) int64 {
	bits := int64(mode.Perm())
	if mode&os.ModeSetuid != 0 {
		bits |= 0o4000
	}
	if mode&os.ModeSetgid != 0 {
		bits |= 0o2000
	}
	if mode&os.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
