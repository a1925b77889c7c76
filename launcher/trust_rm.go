package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
)

func trustRmCommand(c *cli) *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "rm [--prefix PREFIX] FINGERPRINT…",
		Short: "stop trusting keys",
		Long: `rm removes keys from the folder trustDirectory of the configuration: wherever they are in it, or
with --prefix for that prefix only. FINGERPRINT may be the end of one, of at least 8 digits.
From then on no image that only they have signed is run as a stager.`,
		Args:              wants(1, -1, "FINGERPRINT…"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, arg := range args {
				errs = append(errs, c.removeTrust(arg, prefix, cmd.Flags().Changed("prefix")))
			}
			return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "no longer trust the keys for images below the name `PREFIX`")
	return cmd
}

// removeTrust removes the keys whose fingerprint ends in text: for each prefix, or for one.
func (c *cli) removeTrust(text, prefix string, one bool) error {
	const enough = 8
	ring, err := signing.ReadTrust(c.config.TrustDirectory)
	if err != nil {
		return err
	}
	wanted := plainFingerprint(text)
	var found []signing.Trusted
	for _, key := range ring.Keys() {
		if len(wanted) >= enough && strings.HasSuffix(key.Fingerprint, wanted) && (!one || key.Prefix == prefix) {
			found = append(found, key)
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("no key %s in %s; keys in the files of trustedKeys are removed there", quoted(text), c.config.TrustDirectory)
	}
	for _, key := range found {
		if key.Fingerprint != found[0].Fingerprint {
			return fmt.Errorf("%s is the end of several fingerprints", quoted(text))
		}
	}
	for _, key := range found {
		if err := signing.Distrust(c.config.TrustDirectory, key.Prefix, key.Fingerprint); err != nil {
			return err
		}
	}
	return nil
}
