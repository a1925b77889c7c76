package sources

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"kurma.io/stager/launcher/images"
)

// lookUpUser sets user and groups as Docker does: USER[:GROUP], each a name or a number. Without a
// group it is the user's own, and the user is in the groups that list it. Appc has no such
// default, so it is decided here, with the image's own files. A name that they do not have stays: the caller of a start
// may name another user, and without one the stager refuses this name.
func (a *app) lookUpUser(text string, layers []*images.Image) error {
	user, group, _ := strings.Cut(text, ":")
	user = cmp.Or(user, "0")
	topFirst := slices.Clone(layers)
	slices.Reverse(topFirst)
	accounts, err := images.AccountsOf(topFirst)
	account, known := accounts.Find(user)
	switch {
	case err != nil && (group == "" || !known): // a number with a group needs no file
		return err
	case !known && strings.HasPrefix(user, "/"): // for appc, the owner of a file
		return errors.New("not in the image's /etc/passwd")
	}
	a.User, a.Group = user, group
	switch {
	case group != "":
	case known:
		a.Group, a.SupplementaryGIDs = account.Group, account.Groups
	default:
		a.Group = "0" // appc wants one
	}
	return nil
}
