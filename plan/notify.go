package plan

import (
	"fmt"

	"kurma.io/stager/manifest"
)

// notifyAnnotation is an annotation of an image, or of the app in the pod: the app reports
// when it is ready (appc, aci.md, annotations).
const notifyAnnotation = "appc.io/executor/supports-systemd-notify"

// notifies reports whether the app speaks sd_notify(3). The pod's annotation overrides the
// image's. An invalid value is a warning, not an error: the app must also run without the
// protocol.
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
	return false, fmt.Sprintf(`annotation %s: %q is neither "true" nor "false": the app is ready when it runs`,
		notifyAnnotation, value)
}
