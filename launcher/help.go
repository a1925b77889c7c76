package main

import (
	"github.com/spf13/cobra"
)

// helpCommand is `help COMMAND…`: it prints what `COMMAND --help` prints.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "help [COMMAND]",
		Short:                 "describe a command",
		GroupID:               otherGroup,
		DisableFlagsInUseLine: true,
		PersistentPreRunE:     begins,
		ValidArgsFunction:     completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && about.HasSubCommands() {
				return needCommand(about, rest)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func completeCommands(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	about, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) == 0 {
		for _, sub := range about.Commands() {
			if sub.IsAvailableCommand() {
				found = append(found, cobra.CompletionWithDesc(sub.Name(), sub.Short))
			}
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}
