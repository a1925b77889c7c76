package unionfs

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// For tests of pure decisions, and of the way that older kernels take.
var (
	Distinct       = distinct
	AUFSMountError = aufsMountError
	JudgeXattrs    = judgeXattrs
	JudgeNoXattrs  = judgeNoXattrs
	RefuseMarks    = refuseMarks
	StackedType    = stackedType
)

// AUFSOptions returns the option texts of aufsCalls and the branches that each adds.
func AUFSOptions(upper string, layers []string, page int) (options []string, branches []int) {
	for _, call := range aufsCalls(upper, layers, page) {
		options = append(options, call.options)
		branches = append(branches, call.branches)
	}
	return options, branches
}

// CopyBytes is copier.copyBytes.
func CopyBytes(ctx context.Context, dst, in *os.File, most int64) error {
	return (&copier{ctx: ctx}).copyBytes(dst, in, most)
}

// LegacyOverlay is Overlay as on a kernel without lowerdir+.
func LegacyOverlay() Driver { return Overlay{mount2: true} }

// LegacyOptions is the option text of mount(2) for n layers.
func LegacyOptions(n int) string {
	return overlayPlan{lower: make([]string, n), upper: "/s/upper", work: "/s/work"}.legacyOptions(true)
}

// Keeps is Filter.keeps.
func (f *Filter) Keeps(path string, dir bool) bool { return f.keeps(path, dir) }

// CopyRegular copies a file between two folders as if it had been found to be a regular file.
func CopyRegular(from, to, name string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Open(to)
	if err != nil {
		return err
	}
	defer out.Close()
	return (&copier{ctx: context.Background()}).regular(&entry{name: name, path: name, dir: in, stat: unix.Stat_t{Size: 1, Blocks: 1}}, int(out.Fd()))
}
