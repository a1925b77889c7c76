package cgroup

import (
	"os"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.SettleAsRoot()
	os.Exit(m.Run())
}
