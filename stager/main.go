// Command stager is the reference stager. A Kurma daemon starts it in a container, in which it
// builds, runs and supervises the apps of a pod (Kurma Stager Specification). The same program is
// every executable that the specification requires; the name by which it is called selects one.
//
// Package program is its main function, and package boot takes a pod from its manifest to its end. Read boot.go there
// first.
package main

import (
	"os"

	"kurma.io/stager/callins/plain"
	"kurma.io/stager/program"
	"kurma.io/stager/program/native"
)

func main() { os.Exit(program.Main(parts())) }

// parts are those of the reference stager.
func parts() program.Options {
	return program.Options{Begin: native.Begin, Streams: plain.Streams}
}
