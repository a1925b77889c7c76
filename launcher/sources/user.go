package sources

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/images"
)

// maxAccounts is the largest /etc/passwd or /etc/group that is read.
const maxAccounts = 1 << 20

// lookUpUser sets user and groups as Docker does: USER[:GROUP], each a name or a number. Without a
// group it is the user's own, and the user is in the groups that list it. Appc has no such
// default, so it is decided here, with the image's own files.
func (a *app) lookUpUser(text string, layers []*images.Image) error {
	user, group, hasGroup := strings.Cut(text, ":")
	if user == "" {
		user = "0"
	}
	a.User = user
	accounts, err := readLines(layers, "etc/passwd")
	if err != nil {
		return err
	}
	name := user
	account := slices.IndexFunc(accounts, func(fields []string) bool {
		return len(fields) > 3 && (fields[0] == user || fields[2] == user)
	})
	if account >= 0 {
		name = accounts[account][0]
	} else if !isID(user) {
		return errors.New("the image's /etc/passwd does not have it")
	}
	if hasGroup && group != "" {
		a.Group = group
		return nil
	}
	a.Group = "0"
	if account >= 0 {
		a.Group = accounts[account][3]
	}
	groups, err := readLines(layers, "etc/group")
	if err != nil {
		return err
	}
	for _, fields := range groups {
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), name) || fields[2] == a.Group {
			continue
		}
		if id, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			a.SupplementaryGIDs = append(a.SupplementaryGIDs, int(id))
		}
	}
	return nil
}

func isID(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}

// readLines returns the fields of a file's lines, of the topmost layer that has it. A whiteout ends the
// search.
func readLines(layers []*images.Image, name string) ([][]string, error) {
	for _, layer := range slices.Backward(layers) {
		lines, err := readLinesOf(layer, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return lines, err
	}
	return nil, nil
}

func readLinesOf(layer *images.Image, name string) ([][]string, error) {
	root, err := os.OpenRoot(layer.Rootfs())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for at := name; at != "."; at = path.Dir(at) {
		info, err := root.Lstat(at)
		if err == nil && info.Mode()&fs.ModeDevice != 0 {
			return nil, nil // a whiteout
		}
	}
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxAccounts {
		return nil, fmt.Errorf("the image's /%s is not a file of at most %d bytes", name, maxAccounts)
	}
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var lines [][]string
	scanner := bufio.NewScanner(io.LimitReader(file, maxAccounts))
	for scanner.Scan() {
		lines = append(lines, strings.Split(scanner.Text(), ":"))
	}
	return lines, scanner.Err()
}
