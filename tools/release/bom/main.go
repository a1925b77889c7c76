// Command bom writes the bill of materials of a program that Go has built, and copies the licences
// of all that is linked into it. Further programs of Go are those that are shipped with it.
//
//	bom --version V --epoch SECONDS --modules DIR --goroot DIR [--c NAME=VERSION=PURL=LICENCE=FILE[:FILE]...]...
//	    -o OUT.json --licenses DIR PROGRAM...
//
// The bill is a CycloneDX document. The list of Go modules is the one that the linker has written into
// the program. Modules is Go's module cache, in which bom finds the modules' licences. Each --c is a C
// library that is linked statically, or a program or library that is shipped with it, with its licence, an
// expression of SPDX, and the files that have the text of it.
//
// The same program and options give the same bytes.
//
// Of tools that exist, cyclonedx-gomod and go-licenses know Go's modules only: libseccomp, glibc, libgcc and what else
// is linked statically or shipped would need a program to merge two bills. cyclonedx-gomod reports licences as guesses
// and copies no licence; go-licenses reads the packages' source, not the program, and fails for those of the standard
// library with several versions of Go (its issues 128 and 324).
package main

import (
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

type options struct {
	programs                                []string
	version, modules, goroot, out, licenses string
	epoch                                   int64
	libraries                               []library
}

// library is a C library.
type library struct {
	name, version, purl, license string
	files                        []string
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bom:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bom", flag.ContinueOnError)
	flags.StringVar(&o.version, "version", "", "the program's `version`")
	flags.Int64Var(&o.epoch, "epoch", 0, "time of the document, `seconds` since 1970")
	flags.StringVar(&o.modules, "modules", "", "Go's module cache, a `folder`")
	flags.StringVar(&o.goroot, "goroot", "", "Go's own `folder`")
	flags.StringVar(&o.out, "o", "", "the document, a `file`")
	flags.StringVar(&o.licenses, "licenses", "", "`folder` for the licences")
	flags.Func("c", "a C library, `NAME=VERSION=PURL=LICENCE=FILE[:FILE]...`; may be repeated", o.addLibrary)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() == 0 || o.version == "" || o.modules == "" || o.goroot == "" || o.out == "" || o.licenses == "" {
		fmt.Fprintln(os.Stderr, "bom: want a program, and --version, --modules, --goroot, -o and --licenses")
		return o, errors.New("usage")
	}
	o.programs = flags.Args()
	return o, nil
}

func (o *options) addLibrary(text string) error {
	parts := strings.SplitN(text, "=", 5)
	if len(parts) != 5 {
		return errors.New("want NAME=VERSION=PURL=LICENCE=FILES")
	}
	// A package's URL may have "=" in it, and is then written with %3D.
	purl := strings.ReplaceAll(parts[2], "%3D", "=")
	o.libraries = append(o.libraries, library{parts[0], parts[1], purl, parts[3], strings.Split(parts[4], ":")})
	return nil
}

func run(o options) error {
	var infos []*buildinfo.BuildInfo
	for _, program := range o.programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("read build information: %w", err)
		}
		infos = append(infos, info)
	}
	components, err := o.components(infos)
	if err != nil {
		return err
	}
	file, err := os.Create(o.out)
	if err != nil {
		return err
	}
	encoder := cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false)
	return errors.Join(encoder.Encode(o.document(infos[0], components)), file.Close())
}

// components are what is linked into the programs: C libraries, Go's own packages and modules, each once. It
// copies the licence of each.
func (o options) components(infos []*buildinfo.BuildInfo) ([]cdx.Component, error) {
	var all []cdx.Component
	for _, l := range o.libraries {
		c, err := o.library(l)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	release := strings.TrimPrefix(infos[0].GoVersion, "go")
	std := component("std", release, "pkg:golang/std@"+release)
	if err := o.license(&std, o.goroot); err != nil {
		return nil, err
	}
	all = append(all, std)
	for _, info := range infos {
		for _, m := range info.Deps {
			c, err := o.module(m)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(all, func(other cdx.Component) bool { return other.BOMRef == c.BOMRef }) {
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// module is the component of a Go module.
func (o options) module(m *debug.Module) (cdx.Component, error) {
	c := component(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	if m.Replace != nil {
		return c, fmt.Errorf("module %s is replaced", m.Path)
	}
	if sum, ok := moduleHash(m.Sum); ok {
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}
	}
	dir, err := moduleDir(o.modules, m.Path, m.Version)
	if err != nil {
		return c, err
	}
	return c, o.license(&c, dir)
}

// library is the component of a C library. It copies the library's licences.
func (o options) library(l library) (cdx.Component, error) {
	c := component(l.name, l.version, l.purl)
	c.Licenses = &cdx.Licenses{{Expression: l.license}}
	for _, file := range l.files {
		if err := copyFile(file, filepath.Join(o.licenses, l.name+"@"+l.version, filepath.Base(file))); err != nil {
			return c, err
		}
	}
	return c, nil
}

func component(name, version, purl string) cdx.Component {
	return cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: name, Version: version, PackageURL: purl}
}

// document is the bill of materials.
func (o options) document(info *buildinfo.BuildInfo, components []cdx.Component) *cdx.BOM {
	name := filepath.Base(o.programs[0])
	folder := strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/")
	main := component(name, o.version, "pkg:golang/"+info.Main.Path+"@"+o.version+"#"+folder)
	main.Type = cdx.ComponentTypeApplication
	main.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	var properties []cdx.Property
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" || s.Key == "-tags" {
			properties = append(properties, cdx.Property{Name: "build:" + s.Key, Value: s.Value})
		}
	}
	main.Properties = &properties
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: time.Unix(o.epoch, 0).UTC().Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom
}
