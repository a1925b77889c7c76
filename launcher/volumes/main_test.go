package volumes

import (
	"testing"

	"kurma.io/stager/tests/surroundings"
)

func TestMain(m *testing.M) {
	surroundings.Settle()
	m.Run()
}
