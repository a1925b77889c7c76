package main

import (
	"encoding/json"
	"errors"

	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
)

// firstKilled is an isolator of an app: if it is true, the kernel kills the app before other processes when the machine's
// memory is full.
const firstKilled = "example.com/template/first-killed"

func decideFirstKilled(value json.RawMessage, _ spec.Support) (plan.Decision, error) {
	var first bool
	if json.Unmarshal(value, &first) != nil {
		return plan.Decision{}, errors.New("must be true or false")
	}
	if !first {
		return plan.Decision{}, nil
	}
	return plan.Decision{Change: func(app *plan.App) { app.Spec.OOMScoreAdj = 1000 }}, nil
}
