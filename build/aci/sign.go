package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"kurma.io/stager/signing"
)

// keyOptions choose the key that signs: --key or --gpg.
type keyOptions struct{ file, gpg string }

func (k *keyOptions) flags(flags *flag.FlagSet) {
	flags.StringVar(&k.file, "key", "", "private key `file` to sign with")
	flags.StringVar(&k.gpg, "gpg", "", "`ID` of the key in your gpg agent to sign with")
}

func (k *keyOptions) given() bool { return k.file != "" || k.gpg != "" }

func (k *keyOptions) check() error {
	if k.file != "" && k.gpg != "" {
		return usageError{"want --key or --gpg, not both"}
	}
	return nil
}

// signer writes the signature of a file.
type signer func(w io.Writer, file io.ReadSeeker) error

func (k *keyOptions) signer() (signer, error) {
	if k.gpg != "" {
		return func(w io.Writer, file io.ReadSeeker) error { return signing.SignWithGPG(w, file, k.gpg) }, nil
	}
	key, err := signing.ReadKey(k.file)
	return keySigner(key), err
}

func keySigner(key *signing.Key) signer {
	return func(w io.Writer, file io.ReadSeeker) error { return signing.Sign(w, file, key) }
}

// sign writes PATH.asc, the signature of the file PATH.
func sign(path string, by signer) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return writeFile(path+".asc", 0o644, func(w io.Writer) error { return by(w, file) })
}

func runSign(_ streams, flags *flag.FlagSet, args []string) error {
	var key keyOptions
	key.flags(flags)
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 || !key.given() {
		return usageError{"sign: want --key FILE or --gpg ID, and FILE..."}
	}
	if err := key.check(); err != nil {
		return err
	}
	by, err := key.signer()
	if err != nil {
		return err
	}
	for _, path := range flags.Args() {
		if err := sign(path, by); err != nil {
			return err
		}
	}
	return nil
}

func runVerify(s streams, flags *flag.FlagSet, args []string) error {
	var keys []string
	flags.Func("key", "public key `file` that is trusted; may be repeated", func(path string) error {
		keys = append(keys, path)
		return nil
	})
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() == 0 || keys == nil {
		return usageError{"verify: want --key FILE, and FILE..."}
	}
	ring, err := signing.ReadKeyRing(keys...)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range flags.Args() {
		fingerprint, err := verify(ring, path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		fmt.Fprintf(s.stdout, "%s: signed by %s\n", path, fingerprint)
	}
	return errors.Join(errs...)
}

// verify verifies the signature PATH.asc of the file PATH and returns the fingerprint of its key.
func verify(ring signing.KeyRing, path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	signature, err := os.Open(path + ".asc")
	if err != nil {
		return "", err
	}
	defer signature.Close()
	return signing.Verify(ring, file, signature)
}

func runKey(s streams, flags *flag.FlagSet, args []string) error {
	name := flags.String("new", "", "make a key for this `name`, without a passphrase")
	private := flags.String("public", "", "write the public half of the private key in this `file`")
	out := flags.String("o", "", "the `file` to write")
	if err := parseFlags(flags, args); err != nil {
		return err
	}
	if flags.NArg() > 0 || (*name == "") == (*private == "") || *out == "" {
		return usageError{"key: want --new NAME or --public FILE, and -o OUT"}
	}
	if *private != "" {
		key, err := signing.ReadKey(*private)
		if err != nil {
			return err
		}
		return writeFile(*out, 0o644, key.WritePublic)
	}
	if _, err := os.Lstat(*out); err == nil {
		return fmt.Errorf("%s exists: a key that is overwritten is lost", *out)
	}
	key, err := signing.NewKey(*name)
	if err != nil {
		return err
	}
	if err := writeFile(*out, 0o600, key.WritePrivate); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.stdout, key.Fingerprint())
	return err
}
