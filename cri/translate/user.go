package translate

import (
	"fmt"
	"slices"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// identity is who the app's process runs as.
type identity struct {
	User, Group string
	Groups      []int
}

// userOf decides who the process runs as: the image's user, or another one, whose groups are those of the image's
// files.
func userOf(s *runtimeapi.LinuxContainerSecurityContext, f Facts) (identity, error) {
	i := identity{User: f.Image.User, Group: f.Image.Group, Groups: slices.Clone(f.Image.Groups)}
	asked := s.GetRunAsUsername()
	if s.GetRunAsUser() != nil {
		asked = strconv.FormatInt(s.GetRunAsUser().GetValue(), 10)
	}
	switch {
	case asked != "" && asked != i.User:
		account, ok, err := f.Account(asked)
		if err != nil {
			return i, fmt.Errorf("look up user %q: %w", asked, err)
		}
		if !ok {
			return i, refuse("user %q without an entry in the image's /etc/passwd", asked)
		}
		i = identity{asked, account.Group, account.Groups}
	case asked == "" && s.GetRunAsGroup() != nil:
		return i, refuse("runAsGroup without a user")
	}
	if s.GetRunAsGroup() != nil {
		i.Group = strconv.FormatInt(s.GetRunAsGroup().GetValue(), 10)
	}
	if s.GetSupplementalGroupsPolicy() == runtimeapi.SupplementalGroupsPolicy_Strict {
		i.Groups = nil
	}
	err := i.addGroups(s.GetSupplementalGroups())
	return i, err
}

// addGroups adds supplementary groups, each once.
func (i *identity) addGroups(groups []int64) error {
	for _, g := range groups {
		if g < 0 || g > 1<<31-1 {
			return refuse("supplemental group %d", g)
		}
		i.Groups = append(i.Groups, int(g))
	}
	slices.Sort(i.Groups)
	i.Groups = slices.Compact(i.Groups)
	return nil
}

// status is the identity for a status; nil if user or group is a name.
func (i identity) status() *runtimeapi.LinuxContainerUser {
	uid, err := strconv.ParseInt(i.User, 10, 64)
	if err != nil {
		return nil
	}
	gid, err := strconv.ParseInt(i.Group, 10, 64)
	if err != nil {
		return nil
	}
	groups := []int64{gid}
	for _, g := range i.Groups {
		if int64(g) != gid {
			groups = append(groups, int64(g))
		}
	}
	return &runtimeapi.LinuxContainerUser{Uid: uid, Gid: gid, SupplementalGroups: groups}
}
