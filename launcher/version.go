package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"kurma.io/stager/internal/version"
)

// versionCommand is `version`.
func versionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "print the launcher's version",
		Args:              wants(0, 0, "no arguments"),
		PersistentPreRunE: begins,
		RunE: func(*cobra.Command, []string) error {
			if c.json {
				return c.printJSON(struct {
					Version string `json:"version"`
					Go      string `json:"go"`
					Arch    string `json:"arch"`
				}{version.String(), runtime.Version(), runtime.GOARCH})
			}
			_, err := fmt.Fprintln(c.stdout, "launcher", version.String())
			return err
		},
	}
}
