package unionfstest

import (
	"slices"
	"testing"

	"kurma.io/stager/tests/clause"
	"kurma.io/stager/tests/conformance"
	"kurma.io/stager/unionfs"
)

// Unmet declares cases that a driver does not meet, see conformance.Unmet.
type Unmet = conformance.Unmet

// Run checks that d keeps the contract of unionfs.Driver and the promises of package unionfs. Each
// case is a subtest. Run needs root and the namespace that Main makes. It fails if the driver does not
// work on this kernel, so a driver's test calls Probe first.
//
// Run also runs the cases of unmet, and logs each with its reason. The test fails if a case of unmet
// passes, so that declarations stay true, if no case has a name of unmet, if it is one of the core, without which no app
// runs, and if a reason is empty. Names of cases do not change.
func Run(t *testing.T, d unionfs.Driver, unmet Unmet) {
	t.Helper()
	conformance.Run(t, d.Name(), casesOf(d), unmet)
}

func casesOf(d unionfs.Driver) []conformance.Case {
	var list []conformance.Case
	for _, c := range cases() {
		list = append(list, conformance.Case{Name: c.name, Core: slices.Contains(core(), c.name), Run: func(t testing.TB) {
			clause.Covers(t, c.clause)
			c.run(newBench(t, d))
		}})
	}
	return list
}

// core are the names of the cases without which no app runs in a root: it has the layers' files, the app writes, and the
// next start finds none of that.
func core() []string {
	return []string{"topmost layer wins", "root is a mount point", "deleted stays deleted", "a clean copy for every start", "unmount"}
}

type testCase struct {
	name   string
	clause string // of the specification, where there is one
	run    func(*bench)
}

func cases() []testCase {
	return []testCase{
		{"topmost layer wins", "C-FS-03", topmostWins},
		{"directories merge", "", directoriesMerge},
		{"replacement", "", replacement},
		{"symlink to a directory is replaced", "C-FS-06", symlinkReplaced},
		{"symlinks never lead out of the root", "", symlinksStayInside},
		{"a file between two directories", "", fileBetween},
		{"marks of overlay in layers", "", overlayMarks},
		{"wh names are ordinary", "", whNames},
		{"a layer given twice", "", layerTwice},
		{"path whitelist", "C-FS-05", pathWhitelist},
		{"path whitelist of all paths", "C-FS-04", wholeWhitelist},

		{"attributes", "C-FS-08", attributes},
		{"hard links", "", hardLinks},
		{"top directory", "C-FS-08", topDirectory},
		{"top directory with a path whitelist", "", topDirectoryFiltered},
		{"root is a mount point", "C-FS-10", mountPoint},
		{"devices and set-user-ID on a nosuid nodev scratch", "", nodevScratch},
		{"odd names", "C-FS-09", oddNames},
		{"names of 255 bytes", "C-FS-09", longNames},

		{"deleted stays deleted", "", deleted},
		{"directory made again is empty", "", recreated},
		{"rename and link", "", renameAndLink},
		{"rename of directories with content", "", renameDirectories},
		{"writes", "", writes},
		{"times that an app sets", "", timesSet},
		{"a clean copy for every start", "C-FS-07", cleanCopy},
		{"two apps of one image at once", "", twoApps},

		{"1 layer", "", func(b *bench) { manyLayers(b, 1) }},
		{"29 layers", "", func(b *bench) { manyLayers(b, 29) }},
		{"128 layers", "", func(b *bench) { manyLayers(b, 128) }},
		{"500 layers", "", func(b *bench) { manyLayers(b, 500) }},
		{"bad roots", "", badRoots},
		{"unmount", "", unmount},
		{"probe leaves nothing", "", probe},
	}
}
