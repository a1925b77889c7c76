package unionfs

// For tests of pure decisions, and of the way that older kernels take.
var (
	AUFSOptions = aufsOptions
	Distinct    = distinct
)

// LegacyOverlay is Overlay as on a kernel without lowerdir+.
func LegacyOverlay() Driver { return Overlay{mount2: true} }

// LegacyOptions is the option text of mount(2) for n layers.
func LegacyOptions(n int) string {
	return overlayPlan{lower: make([]string, n), upper: "/s/upper", work: "/s/work"}.legacyOptions(true)
}

// Keeps is Filter.keeps.
func (f *Filter) Keeps(path string, dir bool) bool { return f.keeps(path, dir) }
