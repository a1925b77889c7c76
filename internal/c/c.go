// Package c has the headers that the C files of several rooms share. A room with such C files imports the package: then
// a change of a header compiles the room again, and go mod vendor copies the headers.
package c

import "embed"

// Headers are the headers.
//
//go:embed *.h
var Headers embed.FS
