package unionfs

// LegacyOverlay is Overlay as on a kernel without lowerdir+.
func LegacyOverlay() Driver { return Overlay{mount2: true} }
