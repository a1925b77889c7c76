package build

import (
	"archive/tar"
	"fmt"
	"os"
	"path"
	"strings"

	"kurma.io/stager/names"
)

// StagerTree lists the files of a stager image: the static binary as names.Exec
// and a link names.CallInDir/NAME to it for each call-in. Everything else in a
// stager's root is made by the daemon.
func StagerTree(binary string) ([]Entry, error) {
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
	return entries, nil
}

// inside returns a path of the image's root as an Entry names it.
func inside(path string) string { return strings.TrimPrefix(path, "/") }
