package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// version is the launcher's version. The Makefile sets it: the linker can set only a variable of a package.
var version = "unknown"

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
				}{version, runtime.Version(), runtime.GOARCH})
			}
			_, err := fmt.Fprintln(c.stdout, "launcher", version)
			return err
		},
	}
}
