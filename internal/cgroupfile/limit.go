// Package cgroupfile reads the files of cgroups, of either version.
package cgroupfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// NoLimit is more than any limit: version 1 has a number near the highest for no limit of memory.
const NoLimit = 1 << 62

// Limit returns the limit in a file of a group's folder, NoLimit for none. A limit that cannot be read is an error.
func Limit(dir, file string) (int64, error) {
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return NoLimit, nil // the root of the hierarchy, another controller's, or no group
	}
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(text))
	if word == "max" {
		return NoLimit, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return min(n, NoLimit), nil
}

// LowestLimit returns the lowest limit of the group in the folder dir, an absolute path, and of the groups around it,
// NoLimit for none. The group need not exist.
func LowestLimit(dir, file string) (int64, error) {
	lowest, err := Limit(dir, file)
	for dir != "/" && err == nil {
		dir = filepath.Dir(dir)
		var limit int64
		limit, err = Limit(dir, file)
		lowest = min(lowest, limit)
	}
	return lowest, err
}
