package main

import (
	"kurma.io/stager/signing"

	"github.com/spf13/cobra"
)

// trustCommand is `trust` with its subcommands.
func trustCommand(c *cli) *cobra.Command {
	return group("trust", "manage the keys that may sign images", trustAddCommand(c), trustListCommand(c), trustRmCommand(c))
}

// trustedKey is what `trust list --json` shows of a key.
type trustedKey struct {
	Fingerprint string   `json:"fingerprint"`
	Prefix      string   `json:"prefix,omitempty"` // of the images that it may sign; none for all
	Users       []string `json:"users"`
	State       string   `json:"state"` // "valid", "expired" or "revoked"
}

func describeKey(key signing.Trusted) trustedKey {
	return trustedKey{key.Fingerprint, key.Prefix, append([]string{}, key.Users...), key.State}
}

// forImages says which images a key may sign.
func forImages(prefix string) string {
	if prefix == "" {
		return "all"
	}
	return prefix
}

func trustListCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             "list the keys that may sign images",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return c.listTrust() },
	}
}

func (c *cli) listTrust() error {
	ring, err := c.config.keyring()
	if err != nil {
		return err
	}
	if c.json {
		for _, key := range ring.Keys() {
			if err := c.printJSON(describeKey(key)); err != nil {
				return err
			}
		}
		return nil
	}
	out := c.table("FINGERPRINT", "IMAGES", "STATE", "OWNER")
	for _, key := range ring.Keys() {
		out.row(key.Fingerprint, forImages(key.Prefix), key.State, owners(key))
	}
	return out.flush()
}
