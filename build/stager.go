package build

import (
	"archive/tar"
	"fmt"
	"os"
	"path"
)

// StagerTree lists the files of a stager image: the static binary as /stager
// and the links /opt/stager/{attach,logs,run,status} to it. Everything else
// in a stager's root is made by the daemon.
func StagerTree(binary string) ([]Entry, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return nil, fmt.Errorf("list stager image: %w", err)
	}
	entries := []Entry{
		{Name: "opt", Type: tar.TypeDir, Mode: 0o755},
		{Name: "opt/stager", Type: tar.TypeDir, Mode: 0o755},
		{Name: "stager", Type: tar.TypeReg, Mode: 0o755, Source: binary, Size: info.Size()},
	}
	for _, name := range []string{"attach", "logs", "run", "status"} {
		link := Entry{Name: path.Join("opt/stager", name), Type: tar.TypeSymlink, Mode: 0o777, Link: "/stager"}
		entries = append(entries, link)
	}
	return entries, nil
}
