package main

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"kurma.io/stager/launcher/networks"

	"github.com/spf13/cobra"
)

// networkCommand is `network`.
func networkCommand(c *cli) *cobra.Command {
	return group("network", "show and check the networks of the configuration, and stop those that no pod uses",
		&cobra.Command{
			Use:               "list",
			Aliases:           []string{"ls"},
			Short:             "list networks",
			Args:              wants(0, 0, "no arguments"),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE:              func(cmd *cobra.Command, _ []string) error { return c.listNetworks(cmd.Context()) },
		},
		&cobra.Command{
			Use:               "inspect NETWORK",
			Short:             "show a network, its configuration and its pods, as JSON",
			Args:              wants(1, 1, "a NETWORK"),
			ValidArgsFunction: c.completeNetworks,
			RunE:              func(cmd *cobra.Command, args []string) error { return c.inspectNetwork(cmd.Context(), args[0]) },
		},
		&cobra.Command{
			Use:   "validate [NETWORK…]",
			Short: "check networks: start their plugins, and set them up with the configuration",
			Long: `validate starts the plugin of each network, or of the named networks, and calls its setup with
the network's configuration. It prints a line for each; the exit status is 1 if one cannot be used.`,
			ValidArgsFunction: c.completeNetworks,
			RunE:              func(cmd *cobra.Command, args []string) error { return c.validateNetworks(cmd.Context(), args) },
		},
		&cobra.Command{
			Use:   "prune",
			Short: "stop the plugins of networks that no pod uses",
			Long: `prune stops the plugins of networks that no pod uses, and prints the networks' names. It deletes no
pod: gc does the same after it has deleted ended pods. The next pod on a network starts its plugin again.`,
			Args:              wants(0, 0, "no arguments"),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE:              func(cmd *cobra.Command, _ []string) error { return c.pruneNetworks(cmd.Context()) },
		},
	)
}

// completeNetworks proposes the networks of the configuration.
func (c *cli) completeNetworks(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	if c.begin() == nil {
		for _, n := range c.daemon.Networks() {
			found = append(found, cobra.CompletionWithDesc(n.Name, n.ACI))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

func (c *cli) listNetworks(ctx context.Context) error {
	all, err := c.daemon.DescribeNetworks(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return printAll(c, all)
	}
	out := c.table("NAME", "PLUGIN", "INTERFACE", "DEFAULT", "RUNNING")
	for _, n := range all {
		out.row(n.Name, n.ACI, n.Interface, yes(n.Default), yes(n.Running))
	}
	return out.flush()
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func (c *cli) inspectNetwork(ctx context.Context, name string) error {
	info, err := c.daemon.InspectNetwork(ctx, name)
	if err != nil {
		return err
	}
	return c.printJSON(info)
}

// networkCheck is what `network validate --json` prints.
type networkCheck struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"`
}

func (c *cli) validateNetworks(ctx context.Context, names []string) error {
	for _, name := range names {
		if _, err := networks.Find(c.daemon.Networks(), name); err != nil {
			return err
		}
	}
	var bad error
	for _, n := range c.daemon.Networks() {
		if len(names) > 0 && !slices.Contains(names, n.Name) {
			continue
		}
		check := networkCheck{Name: n.Name}
		if err := c.daemon.ValidateNetwork(ctx, n.Name); err != nil {
			check.Error, bad = oneLine(err), errors.New("a network cannot be used")
		}
		if err := c.printOne(check, check.Name+": "+cmp.Or(check.Error, "good")); err != nil {
			return err
		}
	}
	return bad
}

// stoppedNetwork is what `network prune --json` prints.
type stoppedNetwork struct {
	Name string `json:"name"`
}

// pruneNetworks prints the networks with plugins that were stopped, also if one could not be.
func (c *cli) pruneNetworks(ctx context.Context) error {
	stopped, err := c.daemon.PruneNetworks(ctx)
	for _, name := range stopped {
		if err := c.printOne(stoppedNetwork{name}, name); err != nil {
			return err
		}
	}
	return err
}
