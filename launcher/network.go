package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/plugins"

	"github.com/spf13/cobra"
)

// networkInfo is what `network list --json` and `network inspect --json` show of a network.
type networkInfo struct {
	Name      string `json:"name"`
	ACI       string `json:"aci"`
	Interface string `json:"containerInterface,omitempty"` // the template
	Default   bool   `json:"default,omitempty"`
	Running   bool   `json:"running"`         // whether the plugin's container runs with this configuration
	Image     string `json:"image,omitempty"` // ID of the plugin's image, once it has been used
	PID       int    `json:"pid,omitempty"`   // the stager of the plugin's container
	Log       string `json:"log"`             // what the plugin has written to stderr

	// Only of inspect.
	Configuration json.RawMessage `json:"configuration,omitempty"`
	Pods          []networkPod    `json:"pods,omitempty"`
}

// networkPod is a pod that is connected to a network.
type networkPod struct {
	UUID      string `json:"uuid"`
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	networks.Result
}

// networkCommand is `network`.
func networkCommand(c *cli) *cobra.Command {
	return group("network", "show and check the networks of the configuration",
		&cobra.Command{
			Use:               "list",
			Short:             "list networks",
			Args:              wants(0, 0, "no arguments"),
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE:              func(*cobra.Command, []string) error { return c.listNetworks() },
		},
		&cobra.Command{
			Use:               "inspect NETWORK",
			Short:             "show a network, its configuration and its pods, as JSON",
			Args:              wants(1, 1, "a NETWORK"),
			ValidArgsFunction: c.completeNetworks,
			RunE:              func(_ *cobra.Command, args []string) error { return c.inspectNetwork(args[0]) },
		},
		&cobra.Command{
			Use:   "validate [NETWORK…]",
			Short: "check networks: start their plugins, and set them up with the configuration",
			Long: `validate starts the plugin of each network, or of those that are named, and calls its setup with
the network's configuration. It prints a line for each; the exit status is 1 if one cannot be used.`,
			ValidArgsFunction: c.completeNetworks,
			RunE:              func(cmd *cobra.Command, args []string) error { return c.validateNetworks(cmd.Context(), args) },
		},
	)
}

// completeNetworks proposes the networks of the configuration.
func (c *cli) completeNetworks(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	if c.begin() == nil {
		for _, n := range c.networks {
			found = append(found, cobra.CompletionWithDesc(n.Name, n.ACI))
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

func describeNetwork(containers *plugins.Containers, n networks.Network) (networkInfo, error) {
	state, err := containers.State(n)
	return networkInfo{
		Name:      n.Name,
		ACI:       n.ACI,
		Interface: n.Interface,
		Default:   n.Default,
		Running:   state.Running,
		Image:     state.Image,
		PID:       state.PID,
		Log:       state.Log,
	}, err
}

func (c *cli) listNetworks() error {
	containers, err := c.containers()
	if err != nil {
		return err
	}
	var out *table
	if !c.json {
		out = c.table("NAME", "PLUGIN", "INTERFACE", "DEFAULT", "RUNNING")
	}
	for _, n := range c.networks {
		info, err := describeNetwork(containers, n)
		if err != nil {
			return err
		}
		if !c.json {
			out.row(n.Name, n.ACI, n.Interface, yes(n.Default), yes(info.Running))
			continue
		}
		if err := c.printJSON(info); err != nil {
			return err
		}
	}
	if c.json {
		return nil
	}
	return out.flush()
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

func (c *cli) inspectNetwork(name string) error {
	containers, err := c.containers()
	if err != nil {
		return err
	}
	n, err := networks.Find(c.networks, name)
	if err != nil {
		return err
	}
	info, err := describeNetwork(containers, n)
	if err != nil {
		return err
	}
	info.Configuration = json.RawMessage(n.Entry)
	store, err := c.pods()
	if err != nil {
		return err
	}
	all, err := store.List()
	if err != nil {
		return err
	}
	for _, pod := range all {
		for _, connection := range pod.Connections() {
			if connection.Name == name {
				info.Pods = append(info.Pods, networkPod{pod.Plan.UUID, pod.Plan.Name, connection.Interface, connection.Result})
			}
		}
	}
	return c.printJSON(info)
}

// networkCheck is what `network validate --json` prints.
type networkCheck struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"`
}

func (c *cli) validateNetworks(ctx context.Context, names []string) error {
	containers, err := c.containers()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := networks.Find(c.networks, name); err != nil {
			return err
		}
	}
	var bad error
	for _, n := range c.networks {
		if len(names) > 0 && !slices.Contains(names, n.Name) {
			continue
		}
		check := networkCheck{Name: n.Name}
		if err := containers.Validate(ctx, n); err != nil {
			check.Error, bad = oneLine(err), errors.New("a network cannot be used")
		}
		if err := c.printCheck(check); err != nil {
			return err
		}
	}
	return bad
}

func (c *cli) printCheck(check networkCheck) error {
	if c.json {
		return c.printJSON(check)
	}
	text := "good"
	if check.Error != "" {
		text = check.Error
	}
	return c.line(check.Name + ": " + text)
}
