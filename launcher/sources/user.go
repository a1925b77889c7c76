package sources

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/images"
)

// lookUpUser sets user and groups as Docker does: USER[:GROUP], each a name or a number. Without a
// group it is the user's own, and the user is in the groups that list it. Appc has no such
// default, so it is decided here, with the image's own files.
func (a *app) lookUpUser(text string, layers []*images.Image) error {
	user, group, hasGroup := strings.Cut(text, ":")
	if user == "" {
		user = "0"
	}
	a.User = user
	var roots []string // the top one first
	for _, layer := range slices.Backward(layers) {
		roots = append(roots, layer.Rootfs())
	}
	account, known, err := images.FindAccount(roots, user)
	if err != nil {
		return err
	}
	if !known && !isID(user) {
		return errors.New("the image's /etc/passwd does not have it")
	}
	if hasGroup && group != "" {
		a.Group = group
		return nil
	}
	if !known {
		account = images.Account{Name: user, Group: "0"}
	}
	a.Group = account.Group
	a.SupplementaryGIDs, err = images.GroupsListing(roots, account)
	return err
}

func isID(text string) bool {
	_, err := strconv.ParseUint(text, 10, 31)
	return err == nil
}
