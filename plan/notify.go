package plan

import (
	"fmt"

	"kurma.io/stager/manifest"
)

// notifyAnnotation is an image's, or the app's in the pod: the app says itself
// when it is ready (appc, aci.md, annotations).
const notifyAnnotation = "appc.io/executor/supports-systemd-notify"

// notifies tells whether the app speaks sd_notify(3). The pod goes before the
// image. A value that means nothing is a warning: the app must run without the
// protocol as well.
func notifies(app manifest.App) (speaks bool, warning string) {
	value, found := app.Runtime.Annotations.Get(notifyAnnotation)
	if !found && app.Image != nil {
		value, _ = app.Image.Annotations.Get(notifyAnnotation)
	}
	switch value {
	case "", "false":
		return false, ""
	case "true":
		return true, ""
	}
	return false, fmt.Sprintf(`annotation %s: %q is neither "true" nor "false": the app is ready when it runs`, notifyAnnotation, value)
}
