// Command aci builds, examines, signs and extracts App Container images.
//
//	aci build --manifest FILE --root DIR [--keep-owners] -o OUT.aci
//	aci build --manifest FILE --stager BINARY [--add DIR]... [--version V] [--arch ARCH] [-o OUT.aci]
//	aci inspect [--json | --manifest | --files] FILE.aci
//	aci validate FILE.aci...
//	aci sign --key FILE | --gpg ID FILE...
//	aci verify --key FILE... FILE...
//	aci extract FILE.aci DIR
//	aci key --new NAME | --public FILE -o OUT
//
// "aci OPTIONS" is "aci build OPTIONS".
//
// The first form of build makes an image whose root is the folder DIR. --key or --gpg, which are
// those of sign, also sign the image; --sign signs it with a throwaway key.
//
// The second form makes a stager image from its static binary, adds the files below each DIR, with
// owner 0:0, and signs the image, unless --unsigned forbids it. The signature is OUT.aci.asc. Without
// a key, aci makes a throwaway key, and writes its public key to OUT.aci.pub. OUT defaults
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
	"strings"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/internal/version"
)

func main() {
	os.Exit(exitStatus(dispatch(streams{os.Stdout, os.Stderr}, os.Args[1:]), os.Stderr))
}

// streams are where a command writes.
type streams struct{ stdout, stderr io.Writer }

// command is one of aci's commands. It parses its arguments with flags, which has its name and help.
type command struct {
	name, usage, short string
	run                func(s streams, flags *flag.FlagSet, args []string) error
}

func commands() []command {
	return []command{
		{
			"build", "--manifest FILE (--root DIR | --stager BINARY [--add DIR]...) [-o OUT.aci]",
			"build an image from a folder, or a stager image", runBuild,
		},
		{"inspect", "[--json | --manifest | --files] FILE.aci", "show an image's ID, name and app", runInspect},
		{"validate", "FILE.aci...", "check images by the App Container specification", runValidate},
		{"sign", "(--key FILE | --gpg ID) FILE...", "sign files: FILE.asc is the signature of FILE", runSign},
		{"verify", "--key FILE... FILE...", "verify the signature FILE.asc of each FILE", runVerify},
		{"extract", "FILE.aci DIR", "extract an image to DIR/manifest and DIR/rootfs", runExtract},
		{"key", "(--new NAME | --public FILE) -o OUT", "make a key that signs, or write a key's public half", runKey},
	}
}

// usageError is an error in the command line: exit status 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// exitStatus is the one place where an error becomes text and an exit status.
func exitStatus(err error, stderr io.Writer) int {
	var usage usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "aci:", plaintext.Line(usage.text))
		return 2
	}
	fmt.Fprintln(stderr, "aci:", plaintext.Line(err.Error()))
	return 1
}

func dispatch(s streams, args []string) error {
	if len(args) == 0 {
		return usageError{"want a command: " + commandNames() + "; aci --help describes them"}
	}
	switch args[0] {
	case "--help", "-help", "-h", "help":
		help(s.stdout)
		return nil
	case "--version", "-version", "version":
		_, err := fmt.Fprintln(s.stdout, "aci", version.String())
		return err
	case "man": // for packages, and so not in the help
		return writeManPage(s.stdout)
	}
	if strings.HasPrefix(args[0], "-") {
		args = append([]string{"build"}, args...)
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
		flags.SetOutput(io.Discard) // parseFlags reports
		flags.Usage = func() {}
		return describe(c, s, flags, c.run(s, flags, args[1:]))
	}
	return usageError{fmt.Sprintf("unknown command %q, want one of %s", args[0], commandNames())}
}

// describe prints a command's help if its arguments ask for it, and returns the command's error.
func describe(c command, s streams, flags *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(s.stdout, "usage: aci %s %s\n%s\n", c.name, c.usage, c.short)
		flags.SetOutput(s.stdout)
		flags.PrintDefaults()
	}
	return err
}

// parseFlags parses a command's arguments. An error is a usageError or flag.ErrHelp.
func parseFlags(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return usageError{flags.Name() + ": " + err.Error()}
	}
	return err
}

func commandNames() string {
	var all []string
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}

func help(w io.Writer) {
	fmt.Fprintln(w, "usage: aci COMMAND [ARGUMENTS]")
	for _, c := range commands() {
		fmt.Fprintf(w, "  aci %s %s\n        %s\n", c.name, c.usage, c.short)
	}
	fmt.Fprintln(w, "aci COMMAND --help lists the command's options.")
}

// writeFile writes a file under a temporary name and renames it, so that a reader never sees an
// incomplete file. What a link leads to, a device or a pipe, such as /dev/stdout, is written in place.
func writeFile(path string, mode os.FileMode, write func(io.Writer) error) (err error) {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	if err := errors.Join(write(file), file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
