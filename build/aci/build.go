package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"kurma.io/stager/build"
	"kurma.io/stager/names"
	"kurma.io/stager/signing"
)

// options are build's options.
type options struct {
	manifest, root, stager, version, arch, out string
	add, isolators, configKeys                 []string
	keepOwners, sign, unsigned                 bool
	key                                        keyOptions
}

func runBuild(_ streams, flags *flag.FlagSet, args []string) error {
	o, err := parse(flags, args)
	if err != nil {
		return err
	}
	return run(o)
}

func parse(flags *flag.FlagSet, args []string) (options, error) {
	var o options
	flags.StringVar(&o.manifest, "manifest", "", "the image's manifest, a JSON `file`")
	flags.StringVar(&o.root, "root", "", "`folder` that becomes the image's root")
	flags.StringVar(&o.stager, "stager", "", "static stager `binary` to build a stager image around")
	repeated(flags, &o.add, "add", "`folder` of further files for a stager image")
	repeated(flags, &o.isolators, "isolator", "`name` of an isolator that the stager adds, for launcher validate")
	repeated(flags, &o.configKeys, "config-key", "`name` of a key of stagerConfig that the stager adds")
	flags.StringVar(&o.version, "version", "", "value of the manifest's version label")
	flags.StringVar(&o.arch, "arch", "", "Go's `name` of the architecture; the manifest's arch label gets appc's")
	o.key.flags(flags)
	flags.StringVar(&o.out, "o", "", "the image `file` to write")
	flags.BoolVar(&o.keepOwners, "keep-owners", false, "keep the folder's owners instead of 0:0")
	flags.BoolVar(&o.sign, "sign", false, "sign the image; the default for a stager image")
	flags.BoolVar(&o.unsigned, "unsigned", false, "do not sign a stager image")
	if err := parseFlags(flags, args); err != nil {
		return o, err
	}
	ofFolder := o.root != "" && o.stager == "" && o.out != "" && o.add == nil && o.isolators == nil && o.configKeys == nil
	ofStager := o.root == "" && o.stager != ""
	if o.manifest == "" || flags.NArg() > 0 || !ofFolder && !ofStager {
		return o, usageError{"want --manifest FILE and either --root DIR with -o OUT.aci, " +
			"or --stager BINARY with any number of --add DIR"}
	}
	if o.unsigned && (o.sign || o.key.given()) {
		return o, usageError{"--unsigned contradicts --sign, --key and --gpg"}
	}
	o.sign = !o.unsigned && (o.sign || o.stager != "" || o.key.given())
	return o, o.key.check()
}

// repeated declares an option whose values are added to list.
func repeated(flags *flag.FlagSet, list *[]string, name, usage string) {
	flags.Func(name, usage+"; may be repeated", func(value string) error {
		*list = append(*list, value)
		return nil
	})
}

func run(o options) error {
	manifest, err := readManifest(o)
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = manifest.fileName(names.Program)
	}
	if info, err := os.Stat(o.out); o.sign && err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file, as an image with a signature beside it is", o.out)
	}
	entries, err := entries(o)
	if err != nil {
		return err
	}
	err = writeFile(o.out, 0o644, func(w io.Writer) error { return build.Write(w, manifest.json, entries) })
	if err != nil || !o.sign {
		return err
	}
	signer, err := o.signer()
	if err != nil {
		return err
	}
	return sign(o.out, signer)
}

func entries(o options) ([]build.Entry, error) {
	if o.stager != "" {
		return build.StagerTree(o.stager, o.add...)
	}
	return build.Tree(o.root, o.keepOwners)
}

// signer returns what signs: the key of the options, or a throwaway key, whose public half it writes
// beside the image.
func (o options) signer() (signer, error) {
	if o.key.given() {
		return o.key.signer()
	}
	key, err := signing.NewKey("throwaway key of " + filepath.Base(o.out))
	if err != nil {
		return nil, err
	}
	return keySigner(key), writeFile(o.out+".pub", 0o644, key.WritePublic)
}
