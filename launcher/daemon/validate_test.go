package daemon

import (
	"testing"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/names"
)

// The stager image may be of an earlier version, in which a name was a product's that is standard now.
func TestRowsOfAnImageAreThoseThatAreNotStandard(t *testing.T) {
	stager := &images.Image{Manifest: new(images.Manifest)}
	stager.Manifest.Annotations = map[string]string{
		names.IsolatorsAnnotation: "os/linux/capabilities-ambient-set example.com/mine example.com/mine",
		names.KeysAnnotation:      "gracePeriod greeting Greeting",
	}
	rows := rowsOf(stager)
	if err := rows.Check(); err != nil {
		t.Error(err)
	}
	if len(rows.Isolators) != 1 || rows.Isolators[0].Name != "example.com/mine" || len(rows.Keys) != 1 || rows.Keys[0].Name != "greeting" {
		t.Errorf("%+v", rows)
	}
}
