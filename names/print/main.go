// Command print prints names for the Makefile, for scripts and for C.
//
//	print          the program's name
//	print --c      the names that C files know, as a header: go generate writes internal/c/names.h
package main

//go:generate sh -c "go run . --c >../../internal/c/names.h"

import (
	"fmt"
	"io"
	"os"
	"slices"

	"kurma.io/stager/names"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "print:", err)
		os.Exit(1)
	}
}

// header is the text of internal/c/names.h.
const header = `/* Names that C files share with package names. "go generate ./names/..." writes this file. */
#ifndef STAGER_NAMES_H
#define STAGER_NAMES_H

/* The base name of argv[0] that makes the program a stager. */
#define STAGER_PROGRAM %q

/* The variable that makes the program the shim. Its value is the first of the shim's descriptors, in decimal. */
#define SHIM_ENV %q

/* The folder of the pod's volumes in the stager's root. */
#define VOLUMES_DIR %q

/* The Stager Manifest. */
#define MANIFEST %q

/* The supervisor's socket. */
#define CONTROL_SOCKET %q

/* The base names of argv[0] that make the program a call-in. */
#define RUN %q
#define STATUS %q

#endif
`

func run(out io.Writer, args []string) error {
	var err error
	switch {
	case len(args) == 0:
		_, err = fmt.Fprintln(out, names.Program)
	case slices.Equal(args, []string{"--c"}):
		_, err = fmt.Fprintf(out, header, names.Program, names.ShimVariable,
			names.VolumesDir, names.Manifest, names.ControlSocket, names.Run, names.Status)
	default:
		err = fmt.Errorf("unknown arguments %q", args)
	}
	return err
}
