package main

import (
	"encoding/json"
	"testing"

	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

func TestFirstKilledChangesThePlan(t *testing.T) {
	for value, want := range map[string]int{"true": 1000, "false": 0} {
		d, err := decideFirstKilled(json.RawMessage(value), spec.Support{})
		if err != nil {
			t.Fatal(err)
		}
		var app plan.App
		if d.Change != nil {
			d.Change(&app)
		}
		if app.Spec.OOMScoreAdj != want {
			t.Errorf("%s: %d, want %d", value, app.Spec.OOMScoreAdj, want)
		}
	}
	if _, err := decideFirstKilled(json.RawMessage(`"yes"`), spec.Support{}); err == nil {
		t.Error("a string is accepted")
	}
}
