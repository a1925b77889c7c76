// Package tests tests the built launcher and the signed stager image end to end, as root, with real
// pods of real programs. Package harness says which variables name what is tested.
package tests

import (
	"testing"

	"kurma.io/stager/tests/harness"
)

// suite is what all tests share.
var suite harness.Suite

func TestMain(m *testing.M) { suite.Main(m, probes()) }
