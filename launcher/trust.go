package main

import (
	"cmp"

	"github.com/spf13/cobra"
)

// trustCommand is `trust` with its subcommands.
func trustCommand(c *cli) *cobra.Command {
	return group("trust", "manage the keys that may sign images", trustAddCommand(c), trustListCommand(c),
		trustRmCommand(c))
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
	ring, err := c.daemon.KeyRing()
	if err != nil {
		return err
	}
	if c.json {
		return printAll(c, ring.Keys())
	}
	out := c.table("FINGERPRINT", "IMAGES", "STATE", "OWNER")
	for _, key := range ring.Keys() {
		out.row(key.Fingerprint, cmp.Or(key.Prefix, "all"), key.State, owners(key.Users))
	}
	return out.flush()
}
