package plan

import (
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
)

func TestAnAnnotationMakesAnAppNotify(t *testing.T) {
	annotated := func(value string) types.Annotations {
		return types.Annotations{{Name: notifyAnnotation, Value: value}}
	}
	tests := []struct {
		name       string
		image, pod types.Annotations
		want, warn bool
	}{
		{"absent", nil, nil, false, false},
		{"image", annotated("true"), nil, true, false},
		{"image false", annotated("false"), nil, false, false},
		{"pod", nil, annotated("true"), true, false},
		{"pod before image", annotated("true"), annotated("false"), false, false},
		{"neither true nor false", annotated("yes"), nil, false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			app := manifest.App{Runtime: schema.RuntimeApp{Annotations: test.pod}}
			app.Image = &manifest.Image{ImageManifest: &schema.ImageManifest{Annotations: test.image}}
			got, warning := notifies(app)
			if got != test.want || (warning != "") != test.warn {
				t.Errorf("got %v and warning %q", got, warning)
			}
		})
	}
}
