package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func trustRmCommand(c *cli) *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "rm [--prefix PREFIX] FINGERPRINT…",
		Short: "stop trusting keys",
		Long: `rm removes keys from the folder trustDirectory of the configuration: wherever they are in it, or
with --prefix for that prefix only. FINGERPRINT may be the end of one, of at least 8 digits.
From then on an image that only these keys have signed is not run as a stager.`,
		Args:              wants(1, -1, "FINGERPRINT…"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			var one *string
			if cmd.Flags().Changed("prefix") {
				one = &prefix
			}
			var errs []error
			for _, arg := range args {
				errs = append(errs, c.daemon.Distrust(arg, one))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "stop trusting the keys for images below the name `PREFIX`")
	return cmd
}
