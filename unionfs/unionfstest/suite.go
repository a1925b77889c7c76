package unionfstest

import (
	"testing"

	"kurma.io/stager/unionfs"
)

// Run checks that d keeps the contract of unionfs.Driver and the promises of the
// package unionfs. It needs root and the namespace that Main makes. A driver
// that does not work on this kernel is a failure: its test asks Probe before.
func Run(t *testing.T, d unionfs.Driver) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) { c.run(newBench(t, d)) })
	}
}

type testCase struct {
	name string
	run  func(*bench)
}

func cases() []testCase {
	return []testCase{
		{"C-FS-03 topmost layer wins", topmostWins},
		{"directories merge", directoriesMerge},
		{"replacement", replacement},
		{"C-FS-06 symlink to a directory is replaced", symlinkReplaced},
		{"symlinks never lead out of the root", symlinksStayInside},
		{"a file between two directories", fileBetween},
		{"marks of overlay in layers", overlayMarks},
		{"wh names are ordinary", whNames},
		{"a layer given twice", layerTwice},
		{"C-FS-05 path whitelist", pathWhitelist},
		{"C-FS-04 path whitelist of all paths", wholeWhitelist},

		{"C-FS-08 attributes", attributes},
		{"hard links", hardLinks},
		{"top directory is 0755", topDirectory},
		{"C-FS-10 root is a mount point", mountPoint},
		{"devices and set-user-ID on a nosuid nodev scratch", nodevScratch},
		{"C-FS-09 odd names", oddNames},

		{"deleted stays deleted", deleted},
		{"directory made anew is empty", recreated},
		{"rename and link", renameAndLink},
		{"writes", writes},
		{"C-FS-07 a clean copy for every start", cleanCopy},
		{"two apps of one image at once", twoApps},

		{"1 layer", func(b *bench) { manyLayers(b, 1) }},
		{"29 layers", func(b *bench) { manyLayers(b, 29) }},
		{"128 layers", func(b *bench) { manyLayers(b, 128) }},
		{"500 layers", func(b *bench) { manyLayers(b, 500) }},
		{"bad roots", badRoots},
		{"unmount", unmount},
		{"probe leaves nothing", probe},
	}
}
