package unionfs_test

import (
	"testing"

	"kurma.io/stager/unionfs"
	"kurma.io/stager/unionfs/unionfstest"
)

func TestMain(m *testing.M) { unionfstest.Main(m) }

func TestOverlayConforms(t *testing.T) { unionfstest.Run(t, unionfs.Overlay{}, nil) }

// LegacyOverlay is how overlay is mounted before kernel 6.8.
func TestLegacyOverlayConforms(t *testing.T) { unionfstest.Run(t, unionfs.LegacyOverlay(), nil) }

func TestCopyConforms(t *testing.T) { unionfstest.Run(t, unionfs.Copy{}, nil) }
