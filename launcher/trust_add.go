package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// trustOptions is the command line of `trust add` and `trust rm`.
type trustOptions struct {
	prefix       string
	fingerprints []string
}

func trustAddCommand(c *cli) *cobra.Command {
	var o trustOptions
	cmd := &cobra.Command{
		Use:   "add [--prefix PREFIX] [--fingerprint FINGERPRINT]… FILE…",
		Short: "trust the keys in files",
		Long: `add trusts the OpenPGP public keys in FILEs, armored or binary, and writes them into the folder
trustDirectory of the configuration. With --prefix a key may sign only images with the name PREFIX,
or a name that begins with PREFIX and a slash.

It shows each key's fingerprint and asks for a confirmation; compare the fingerprint with one from
another source. Without a terminal, --fingerprint confirms a key.`,
		Args: wants(1, -1, "FILE…"),
		RunE: func(_ *cobra.Command, args []string) error { return c.addTrust(args, o) },
	}
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "trust the keys only for images below the name `PREFIX`")
	cmd.Flags().StringArrayVar(&o.fingerprints, "fingerprint", nil, "confirm the key with that `FINGERPRINT`")
	return cmd
}

// addTrust asks about the keys of all files before it writes any.
func (c *cli) addTrust(files []string, o trustOptions) error {
	ring, err := signing.ReadKeyRing(files...)
	if err != nil {
		return err
	}
	answers := bufio.NewReader(c.stdin)
	for _, key := range ring.Keys() {
		if err := c.confirm(key, o, answers); err != nil {
			return err
		}
	}
	if err := c.daemon.Trust(ring, o.prefix); err != nil {
		return err
	}
	for _, key := range ring.Keys() {
		key.Prefix = o.prefix
		if err := c.printOne(key, key.Fingerprint); err != nil {
			return err
		}
	}
	return nil
}

// confirm returns an error unless a person or an option has confirmed the key.
func (c *cli) confirm(key signing.Trusted, o trustOptions, answers *bufio.Reader) error {
	if key.State != "valid" {
		return fmt.Errorf("key %s is %s", key.Fingerprint, key.State)
	}
	given := slices.ContainsFunc(o.fingerprints,
		func(f string) bool { return daemon.PlainFingerprint(f) == key.Fingerprint })
	if given {
		return nil
	}
	if len(o.fingerprints) > 0 {
		return fmt.Errorf("key %s matches no --fingerprint", key.Fingerprint)
	}
	if !term.IsTerminal(int(c.stdin.Fd())) {
		return fmt.Errorf("key %s of %s is not confirmed: compare the fingerprint and add --fingerprint %[1]s",
			key.Fingerprint, owners(key.Users))
	}
	return askAbout(key, o.prefix, answers)
}

// askAbout asks the person at the terminal.
func askAbout(key signing.Trusted, prefix string, answers *bufio.Reader) error {
	images := "all images"
	if prefix != "" {
		images = "images below " + printable(prefix)
	}
	letSignalsEnd() // nothing is written before the last answer
	fmt.Fprintf(os.Stderr, "fingerprint: %s\nowner:       %s\nTrust this key for %s? [y/N] ", groupsOf4(key.Fingerprint),
		owners(key.Users), images)
	answer, err := answers.ReadString('\n')
	if err != nil || !slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
		return errors.Join(errors.New("not confirmed; no key was added"), err)
	}
	return nil
}

func groupsOf4(text string) string {
	var groups []string
	for group := range slices.Chunk([]byte(text), 4) {
		groups = append(groups, string(group))
	}
	return strings.Join(groups, " ")
}

// owners names who a key says it belongs to, which anyone can write into a key.
func owners(users []string) string { return printable(strings.Join(users, ", ")) }
