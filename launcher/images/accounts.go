package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// MaxAccounts is the maximum size of a file of users or groups in bytes.
const MaxAccounts = 1 << 20

// Accounts are the users and groups of a root file system, by the fields of the lines of its files.
type Accounts struct{ users, groups [][]string }

// Account is a user, the user's own group and the other groups that list the user.
type Account struct {
	Name, Group string
	Groups      []int
}

// ReadAccounts reads /etc/passwd and /etc/group by read, which returns at most MaxAccounts bytes of a file, and an
// error that is fs.ErrNotExist for none. A file that cannot be read is an error also for a number: the file may
// list the user in another group than 0.
func ReadAccounts(read func(path string) ([]byte, error)) (a Accounts, _ error) {
	for path, lines := range map[string]*[][]string{"etc/passwd": &a.users, "etc/group": &a.groups} {
		text, err := read(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Accounts{}, fmt.Errorf("read /%s: %w", path, err)
		}
		for line := range strings.Lines(string(text)) {
			*lines = append(*lines, strings.Split(strings.TrimRight(line, "\r\n"), ":"))
		}
	}
	return a, nil
}

// AccountsOf reads the users and groups of an image. Layers are the image's in the order of Catalog.Layers, the top one
// first. What is not a file, such as a FIFO, lists nobody.
func AccountsOf(layers []*Image) (Accounts, error) {
	return ReadAccounts(func(path string) ([]byte, error) { return readTop(layers, path) })
}

// Find returns the user with that name or number, which may have leading zeros. A number without an account is in group
// 0, as with Docker and podman.
func (a Accounts) Find(user string) (Account, bool) {
	number, numberErr := strconv.ParseUint(user, 10, 31)
	i := slices.IndexFunc(a.users, func(fields []string) bool {
		if len(fields) < 4 || fields[0] == user {
			return len(fields) > 3
		}
		id, err := strconv.ParseUint(fields[2], 10, 31)
		return err == nil && numberErr == nil && id == number
	})
	if i < 0 {
		return Account{Name: user, Group: "0", Groups: a.listing(user, "0")}, numberErr == nil
	}
	name, group := a.users[i][0], a.users[i][3]
	return Account{Name: name, Group: group, Groups: a.listing(name, group)}, true
}

// listing returns the groups that list the user of that name, without the user's own.
func (a Accounts) listing(name, own string) []int {
	var all []int
	for _, fields := range a.groups {
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), name) || fields[2] == own {
			continue
		}
		if id, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			all = append(all, int(id))
		}
	}
	return all
}

// readTop reads a file of the root that layers make, or returns fs.ErrNotExist.
func readTop(layers []*Image, name string) ([]byte, error) {
	root := NewMerged(layers)
	defer root.Close()
	name, err := root.Resolve(name)
	if err != nil {
		return nil, err
	}
	found, info, err := root.find(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fs.ErrNotExist
	case info.Size() > MaxAccounts:
		return nil, fmt.Errorf("larger than %d bytes", MaxAccounts)
	}
	return os.ReadFile(found) // of an image, which does not change
}
