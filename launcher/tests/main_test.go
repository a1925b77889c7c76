// Package tests tests the built launcher and its network plugins end to end, as root, with the signed stager image
// and real pods. Package harness says which variables name what is tested.
package tests

import (
	"testing"

	"kurma.io/stager/tests/harness"
)

// suite is what all tests share.
var suite harness.Suite

func TestMain(m *testing.M) {
	beMonitor()
	suite.Main(m, nil)
}
