package main

import (
	"math"
	"strings"

	"kurma.io/stager/launcher/daemon"

	"github.com/spf13/cobra"
)

// completionCommand is `completion bash|zsh|fish`: it prints a script for the shell, which asks
// the launcher itself for commands, options, pods, apps and images.
func completionCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "print a completion script for a shell",
		Example:               "  launcher completion bash >/usr/share/bash-completion/completions/launcher",
		Args:                  wants(1, 1, "bash, zsh or fish"),
		ValidArgs:             []cobra.Completion{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		PersistentPreRunE:     begins,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(c.stdout, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(c.stdout)
			case "fish":
				return cmd.Root().GenFishCompletion(c.stdout, true)
			}
			return usageError{"completion: want bash, zsh or fish"}
		},
	}
}

// completer proposes arguments for a command's next one.
type completer = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective)

// completePods proposes pods, up to count of them, and with apps the apps of the first.
func (c *cli) completePods(count int, apps bool) completer {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var found []cobra.Completion
		if c.begin() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if apps && len(args) == 1 {
			if pod, err := c.daemon.FindPod(args[0]); err == nil {
				found = daemon.AppNames(pod)
			}
		}
		all, err := c.daemon.Pods()
		if err != nil || len(args) >= count {
			return found, cobra.ShellCompDirectiveNoFileComp
		}
		for _, pod := range all {
			if pod.Damage == nil {
				found = append(found, cobra.CompletionWithDesc(pod.Plan.Name, string(pod.State.Phase)))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completePodsAndApps proposes pods, and after POD/ the pod's apps.
func (c *cli) completePodsAndApps(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	name, _, isApp := strings.Cut(word, "/")
	if !isApp {
		return c.completePods(math.MaxInt, false)(cmd, args, word)
	}
	if c.begin() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	pod, err := c.daemon.FindPod(name)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	for _, app := range daemon.AppNames(pod) {
		found = append(found, name+"/"+app)
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeImages proposes the names of images, and with files also files, for the next
// argument if there are fewer than count.
func (c *cli) completeImages(count int, files bool) completer {
	directive := cobra.ShellCompDirectiveNoFileComp
	if files {
		directive = cobra.ShellCompDirectiveDefault
	}
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= count || c.begin() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := c.daemon.ImageNames()
		if err != nil {
			return nil, directive
		}
		var found []cobra.Completion
		for _, image := range all {
			found = append(found, cobra.CompletionWithDesc(image.Name, shortID(image.ID)))
		}
		return found, directive
	}
}
