package main

import (
	"os"
	"testing"

	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Settle()
	os.Exit(m.Run())
}
