package podplan

import (
	"fmt"
	"regexp"

	"kurma.io/stager/launcher/images"

	"github.com/appc/spec/schema/types"
)

// takeOwnGroups gives an app whose user the options have changed without a group the groups of that user by the
// image's own files; a number that has no account there is in group 0, as in podman. The image's groups are those of
// its own user.
func (p *Planner) takeOwnGroups(app *types.App, image *images.Image, o AppOptions) error {
	if o.User == "" || o.Group != "" {
		return nil
	}
	layers, err := p.Images.Layers(image)
	if err != nil {
		return err
	}
	var roots []string
	for _, layer := range layers {
		roots = append(roots, layer.Rootfs())
	}
	account, known, err := images.FindAccount(roots, o.User)
	switch {
	case err != nil:
		return fmt.Errorf("look up user %q: %w", o.User, err)
	case !known && !regexp.MustCompile(`^[0-9]+$`).MatchString(o.User):
		return nil // a file's owner, or a name that the stager refuses
	case !known:
		account = images.Account{Name: o.User, Group: "0"}
	}
	app.Group = account.Group
	if app.SupplementaryGIDs, err = images.GroupsListing(roots, account); err != nil {
		return fmt.Errorf("look up groups of user %q: %w", o.User, err)
	}
	return nil
}
