// Package version has the version of the program that it is linked into.
package version

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// version is the version that the Makefile passes to the linker, which can set only a variable of a package.
var version string

// String returns the version that the linker has set, else that of the program's module, without the "v", if the go
// command has installed it as a release (go install MODULE/program@v0.1.0), else "unknown".
func String() string {
	info, _ := debug.ReadBuildInfo()
	return of(version, info)
}

// of takes the build's information, nil for none.
func of(linked string, info *debug.BuildInfo) string {
	var module string
	if info != nil && info.Main.Version != "(devel)" {
		module = strings.TrimPrefix(info.Main.Version, "v")
	}
	return cmp.Or(linked, module, "unknown")
}
