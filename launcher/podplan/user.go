package podplan

import (
	"fmt"

	"kurma.io/stager/launcher/images"

	"github.com/appc/spec/schema/types"
)

// takeOwnGroups gives an app, if the options have a user and no group, the groups of that user by the
// image's own files. The image's groups are those of its own user.
func (p *Planner) takeOwnGroups(app *types.App, image *images.Image, o AppOptions) error {
	if o.User == "" || o.Group != "" {
		return nil
	}
	layers, err := p.Images.Layers(image)
	if err != nil {
		return err
	}
	accounts, err := images.AccountsOf(layers)
	if err != nil {
		return fmt.Errorf("look up user %q: %w", o.User, err)
	}
	if account, ok := accounts.Find(o.User); ok { // else a file's owner, or a name that the stager refuses
		app.Group, app.SupplementaryGIDs = account.Group, account.Groups
	}
	return nil
}
