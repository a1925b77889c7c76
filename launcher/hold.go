package main

import "github.com/spf13/cobra"

// holdCommand is `hold`, hidden: the main process of a plugin container. It waits until it is
// stopped. The plugin's executables are called beside it, see package plugins.
func holdCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "hold",
		Hidden:            true,
		Args:              wants(0, 0, "no arguments"),
		PersistentPreRunE: begins,
		RunE: func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return nil
		},
	}
}
