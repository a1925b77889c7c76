package plan

import (
	"strings"
	"syscall"
	"testing"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
)

func TestAnAnnotationNamesTheStopSignal(t *testing.T) {
	annotated := func(value string) types.Annotations {
		return types.Annotations{{Name: names.StopSignalAnnotation, Value: value}}
	}
	tests := []struct {
		name       string
		image, pod types.Annotations
		want       syscall.Signal // 0 for an error
	}{
		{"absent", nil, nil, syscall.SIGTERM},
		{"image", annotated("SIGQUIT"), nil, syscall.SIGQUIT},
		{"pod", nil, annotated("SIGUSR1"), syscall.SIGUSR1},
		{"pod before image", annotated("SIGQUIT"), annotated("SIGINT"), syscall.SIGINT},
		{"without SIG", annotated("quit"), nil, syscall.SIGQUIT},
		{"number", annotated("3"), nil, syscall.SIGQUIT},
		{"number of a real-time signal", annotated("64"), nil, 64},
		{"first real-time signal", annotated("SIGRTMIN"), nil, 34},
		{"systemd's", annotated("SIGRTMIN+3"), nil, 37},
		{"real-time signal without SIG", annotated("rtmin+30"), nil, 64},
		{"last real-time signal", annotated("SIGRTMAX"), nil, 64},
		{"below the last", annotated("SIGRTMAX-30"), nil, 34},
		{"above the last", annotated("SIGRTMIN+31"), nil, 0},
		{"below the first", annotated("SIGRTMAX-31"), nil, 0},
		{"wrong sign", annotated("SIGRTMIN-3"), nil, 0},
		{"no distance", annotated("SIGRTMIN+"), nil, 0},
		{"0", annotated("0"), nil, 0},
		{"65", annotated("65"), nil, 0},
		{"negative", annotated("-1"), nil, 0},
		{"more than eight bits", annotated("259"), nil, 0},
		{"unknown", annotated("SIGFOO"), nil, 0},
		{"empty", nil, annotated(""), 0},
		{"two lines", annotated("SIGQUIT\nSIGINT"), nil, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			app := manifest.App{Runtime: schema.RuntimeApp{Annotations: test.pod}}
			app.Image = &manifest.Image{ImageManifest: &schema.ImageManifest{Annotations: test.image}}
			got, err := stopSignal(app)
			if got != test.want || (err != nil) != (test.want == 0) {
				t.Errorf("got signal %d, %v", got, err)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "annotation "+names.StopSignalAnnotation+": ")) {
				t.Errorf("the error is %q", err)
			}
		})
	}
}
