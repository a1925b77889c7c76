package images

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
)

// maxAccounts is the largest /etc/passwd or /etc/group that is read.
const maxAccounts = 1 << 20

// Account is a user of an image's /etc/passwd.
type Account struct{ Name, Group string }

// FindAccount returns the user with that name or number by an image's /etc/passwd, and false if it is not there.
// Roots are the files of the image's layers, the top one first.
func FindAccount(roots []string, user string) (Account, bool, error) {
	accounts, err := readLines(roots, "etc/passwd")
	i := slices.IndexFunc(accounts, func(fields []string) bool {
		return len(fields) > 3 && (fields[0] == user || fields[2] == user)
	})
	if err != nil || i < 0 {
		return Account{}, false, err
	}
	return Account{Name: accounts[i][0], Group: accounts[i][3]}, true, nil
}

// GroupsListing returns the groups of an image's /etc/group that list the user of that name, without the user's own.
func GroupsListing(roots []string, a Account) ([]int, error) {
	groups, err := readLines(roots, "etc/group")
	if err != nil {
		return nil, err
	}
	var all []int
	for _, fields := range groups {
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), a.Name) || fields[2] == a.Group {
			continue
		}
		if id, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			all = append(all, int(id))
		}
	}
	return all, nil
}

// readLines returns the fields of a file's lines, of the topmost layer that has it. A whiteout ends the
// search.
func readLines(roots []string, name string) ([][]string, error) {
	for _, root := range roots {
		lines, err := readLinesOf(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return lines, err
	}
	return nil, nil
}

func readLinesOf(dir, name string) ([][]string, error) {
	root, err := os.OpenRoot(dir)
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
