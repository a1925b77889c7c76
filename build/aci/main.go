// Command aci builds an App Container image.
//
//	aci --manifest FILE --root DIR [--keep-owners] -o OUT.aci
//	aci --manifest FILE --stager BINARY [--add DIR]... [--version V] [--key FILE] [-o OUT.aci]
//
// The first form makes an image whose root is the folder DIR. --sign also signs the image.
//
// The second form makes a stager image from its static binary, adds the files below each DIR, with
// owner 0:0, and signs the image. The signature is OUT.aci.asc, made with the private key in FILE.
// Without --key, aci makes a throwaway key, and writes its public key to OUT.aci.pub. OUT defaults
// to PROGRAM-VERSION-OS-ARCH.aci in the working directory. The image's name, its program and its
// log folder come from package names: the manifest has "names/names.go" in place of the first two.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"kurma.io/stager/build"
	"kurma.io/stager/names"
	"kurma.io/stager/signing"
)

type options struct {
	manifest, root, stager, version, key, out string
	add                                       []string
	keepOwners, sign                          bool
}

func main() {
	opts, err := parse(os.Args[1:])
	if err != nil {
		os.Exit(2)
	}
	if err := run(opts); err != nil {
		fmt.Fprintln(os.Stderr, "aci:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("aci", flag.ContinueOnError)
	flags.StringVar(&o.manifest, "manifest", "", "the image's manifest, a JSON `file`")
	flags.StringVar(&o.root, "root", "", "`folder` that becomes the image's root")
	flags.StringVar(&o.stager, "stager", "", "static stager `binary` to build a stager image around")
	flags.Func("add", "`folder` of further files for a stager image; may be repeated", func(dir string) error {
		o.add = append(o.add, dir)
		return nil
	})
	flags.StringVar(&o.version, "version", "", "value of the manifest's version label")
	flags.StringVar(&o.key, "key", "", "private key `file` to sign with")
	flags.StringVar(&o.out, "o", "", "the image `file` to write")
	flags.BoolVar(&o.keepOwners, "keep-owners", false, "keep the folder's owners instead of 0:0")
	flags.BoolVar(&o.sign, "sign", false, "sign the image, as is always done for a stager")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.manifest == "" || (o.root == "") == (o.stager == "") || flags.NArg() > 0 || (o.root != "" && (o.out == "" || o.add != nil)) {
		fmt.Fprintln(os.Stderr, "aci: want --manifest FILE and either --root DIR with -o OUT.aci, or --stager BINARY with any number of --add DIR")
		return o, errors.New("usage")
	}
	o.sign = o.sign || o.stager != "" || o.key != ""
	return o, nil
}

func run(o options) error {
	manifest, err := readManifest(o)
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = manifest.fileName(names.Program)
	}
	entries, err := entries(o)
	if err != nil {
		return err
	}
	err = writeFile(o.out, func(w io.Writer) error { return build.Write(w, manifest.json, entries) })
	if err != nil || !o.sign {
		return err
	}
	return sign(o.out, o.key)
}

func entries(o options) ([]build.Entry, error) {
	if o.stager != "" {
		return build.StagerTree(o.stager, o.add...)
	}
	return build.Tree(o.root, o.keepOwners)
}

func sign(image, keyFile string) error {
	key, err := signingKey(image, keyFile)
	if err != nil {
		return err
	}
	file, err := os.Open(image)
	if err != nil {
		return err
	}
	defer file.Close()
	return writeFile(image+".asc", func(w io.Writer) error { return signing.Sign(w, file, key) })
}

func signingKey(image, keyFile string) (*signing.Key, error) {
	if keyFile != "" {
		return signing.ReadKey(keyFile)
	}
	key, err := signing.NewKey("throwaway key of " + filepath.Base(image))
	if err != nil {
		return nil, err
	}
	return key, writeFile(image+".pub", key.WritePublic)
}

// writeFile writes a file under a temporary name and renames it, so that a reader never sees an
// incomplete file.
func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := errors.Join(write(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
