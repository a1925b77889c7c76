package build

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"kurma.io/stager/names"
)

// StagerTree lists the files of a stager image: the static binary as names.Exec,
// a link names.CallInDir/NAME to it for each call-in, and the files below each
// folder in add (see Tree), with owner 0:0. The daemon makes the rest of a stager's root.
//
// If the image already has a folder, the folder keeps its first mode. Any other path that the image
// already has is an error. A path that the daemon would cover or replace is an error, and so is one
// with a control character or invalid UTF-8.
func StagerTree(binary string, add ...string) ([]Entry, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return nil, fmt.Errorf("list stager image: %w", err)
	}
	entries := []Entry{
		{Name: path.Dir(inside(names.CallInDir)), Type: tar.TypeDir, Mode: 0o755},
		{Name: inside(names.CallInDir), Type: tar.TypeDir, Mode: 0o755},
		{Name: inside(names.Exec), Type: tar.TypeReg, Mode: 0o755, Source: binary, Size: info.Size()},
	}
	for _, name := range names.CallIns() {
		link := Entry{Name: inside(path.Join(names.CallInDir, name)), Type: tar.TypeSymlink, Mode: 0o777, Link: names.Exec}
		entries = append(entries, link)
	}
	for _, dir := range add {
		more, err := Tree(dir, false)
		if err != nil {
			return nil, fmt.Errorf("add %s to stager image: %w", dir, err)
		}
		if entries, err = merge(entries, more); err != nil {
			return nil, fmt.Errorf("add %s to stager image: %w", dir, err)
		}
	}
	return entries, nil
}

// inside returns the Entry's name for a path of the image's root.
func inside(path string) string { return strings.TrimPrefix(path, "/") }

// merge adds entries to a stager image.
func merge(entries, more []Entry) ([]Entry, error) {
	taken := make(map[string]byte) // path to type
	for _, e := range entries {
		taken[e.Name] = e.Type
	}
	for _, e := range more {
		if err := checkAdded(e); err != nil {
			return nil, err
		}
		kind, again := taken[e.Name]
		switch {
		case e.Name == "" && e.Type != tar.TypeDir:
			return nil, errors.New("not a folder")
		case e.Name == "":
			// The root is 0755 in every stager image; the mode of the added folder does not matter.
		case !again:
			taken[e.Name] = e.Type
			entries = append(entries, e)
		case kind != tar.TypeDir || e.Type != tar.TypeDir:
			return nil, fmt.Errorf("/%s: the image already has it", e.Name)
		}
	}
	return entries, nil
}

// checkAdded refuses an entry that a stager would not find in its root under that name.
func checkAdded(e Entry) error {
	if !utf8.ValidString(e.Name) || strings.ContainsFunc(e.Name, unicode.IsControl) {
		return fmt.Errorf("%q: the name has a control character or invalid UTF-8", "/"+e.Name)
	}
	for _, dir := range []string{names.LayersDir, names.VolumesDir, "/dev", "/proc", "/sys"} {
		if "/"+e.Name == dir && e.Type != tar.TypeDir || strings.HasPrefix("/"+e.Name, dir+"/") {
			return fmt.Errorf("/%s: the daemon mounts its own %s", e.Name, dir)
		}
	}
	if "/"+e.Name == names.Manifest || strings.HasPrefix("/"+e.Name, names.Manifest+"/") {
		return fmt.Errorf("/%s: the daemon writes the pod's manifest there", e.Name)
	}
	return nil
}
