package main

import (
	"maps"
	"slices"
	"testing"

	"kurma.io/stager/names"
)

// The image has a link to the program for each of names.CallIns, and the
// program is a call-in under each of callIns.
func TestCallInsAreThoseOfTheImage(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(callIns())), slices.Sorted(slices.Values(names.CallIns())); !slices.Equal(got, want) {
		t.Errorf("the program has the call-ins %q, the image links to %q", got, want)
	}
}
