package waiter

import (
	"testing"

	"kurma.io/stager/names"
)

// The C files have the names by which the program finds what it is.
func TestNamesAreTheSameInC(t *testing.T) {
	if waiterProgram != names.Program || waiterEnvironment != names.SupervisorVariable {
		t.Errorf("waiter.h has %q and %q, package names %q and %q", waiterProgram, waiterEnvironment, names.Program, names.SupervisorVariable)
	}
}
