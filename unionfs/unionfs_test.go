package unionfs_test

import (
	"testing"

	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

func TestMain(m *testing.M) { unionfstest.Main(m) }

func TestOverlay(t *testing.T) { unionfstest.Run(t, unionfs.Overlay{}, nil) }

// TestOverlayMount2 is how overlay is mounted before kernel 6.8.
func TestOverlayMount2(t *testing.T) { unionfstest.Run(t, unionfs.LegacyOverlay(), nil) }

func TestCopy(t *testing.T) { unionfstest.Run(t, unionfs.Copy{}, nil) }
