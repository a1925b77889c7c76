package daemon

import (
	"errors"
	"fmt"
	"testing"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
)

// A pod whose name or port the launcher has chosen is planned again if another pod has taken it meanwhile; one that a
// person has chosen is an error.
func TestOnlyWhatWasChosenIsChosenAgain(t *testing.T) {
	name, port := fmt.Errorf("create pod: %w", pods.ErrNameTaken), fmt.Errorf("create pod: %w", pods.ErrPortTaken)
	chosen := podplan.Options{Name: "p", Publish: []networks.PortMapping{{HostPort: 8080, ContainerPort: 80}, {ContainerPort: 80}}}
	asked := podplan.Options{Name: "p", Publish: chosen.Publish[:1]}
	for _, tt := range []struct {
		err     error
		options podplan.Options
		attempt int
		want    bool
	}{
		{nil, chosen, 1, false},
		{errors.New("no room"), chosen, 1, false},
		{name, podplan.Options{}, 1, true},
		{name, podplan.Options{}, portAttempts, true},
		{name, asked, 1, false},
		{port, chosen, 1, true},
		{port, chosen, portAttempts - 1, true},
		{port, chosen, portAttempts, false},
		{port, asked, 1, false},
	} {
		if got := again(tt.err, tt.options, tt.attempt); got != tt.want {
			t.Errorf("%v, %+v, attempt %d: %v", tt.err, tt.options, tt.attempt, got)
		}
	}
}
