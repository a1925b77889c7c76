package container

import (
	"testing"

	"kurma.io/stager/names"
)

// The shim has the variable by which the program finds that it is the shim.
func TestShimVariableIsTheSameInC(t *testing.T) {
	if shimEnvironment != names.ShimVariable {
		t.Errorf("shim.h has %q, package names %q", shimEnvironment, names.ShimVariable)
	}
}
