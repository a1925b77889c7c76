package main

import (
	"context"
	"fmt"
	"slices"
	"text/template"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// damagedPod is what `ps --json` shows of a damaged pod.
type damagedPod struct {
	UUID    string     `json:"uuid"`
	Name    string     `json:"name,omitempty"` // if it is known
	State   pods.Phase `json:"state"`
	Damaged string     `json:"damaged"` // why
}

// psOptions is the command line of `ps`.
type psOptions struct {
	all, quiet, whole bool
	filter            daemon.PodFilter
	format            *template.Template // nil for a table or JSON
}

// psCommand is `ps`: one line for each pod. Pods that have ended are listed with --all until rm
// or gc; dead and damaged pods are always listed.
func psCommand(c *cli) *cobra.Command {
	o := psOptions{filter: make(daemon.PodFilter)}
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "list pods",
		Example: "  launcher ps --filter name=web --filter state=running\n" +
			"  launcher ps --format '{{.Name}} {{.State}} {{.Created}}'",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.listPods(cmd.Context(), o) },
	}
	cmd.Flags().BoolVarP(&o.all, "all", "a", false, "list ended pods as well")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only the UUIDs")
	cmd.Flags().BoolVar(&o.whole, "no-trunc", false, "print UUIDs and rows as long as they are")
	cmd.Flags().Func("filter", "list only the pods with `KEY=VALUE`: name, state, app, network, or label=KEY[=VALUE]; "+
		"with state, ended pods as well", o.filter.Add)
	cmd.Flags().Func("format", "print json, or each pod by a Go `TEMPLATE` of the fields of daemon.PodInfo, such as "+
		"{{.Name}}", func(text string) (err error) {
		if c.json = text == "json"; !c.json {
			o.format, err = template.New("format").Parse(text)
		}
		return err
	})
	return cmd
}

func (c *cli) listPods(ctx context.Context, o psOptions) error {
	all, err := c.daemon.Pods()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(p *pods.Pod) bool { return !o.filter.Matches(p) })
	if !o.all && o.filter["state"] == nil {
		all = slices.DeleteFunc(all, func(p *pods.Pod) bool { return p.State.Phase == pods.Exited })
	}
	if o.quiet && !c.json {
		return c.printUUIDs(all)
	}
	infos := c.daemon.Describe(ctx, all...)
	switch {
	case o.format != nil:
		return c.formatPods(infos, o.format)
	case !c.json:
		return c.printPods(infos, o.whole)
	}
	for _, info := range infos {
		var shown any = info
		if info.Damage != nil {
			shown = damagedPod{info.UUID, info.Name, info.State, oneLine(info.Damage)}
		}
		if err := c.printJSON(shown); err != nil {
			return err
		}
	}
	return nil
}

func (c *cli) printUUIDs(all []*pods.Pod) error {
	for _, pod := range all {
		if _, err := fmt.Fprintln(c.stdout, pod.Plan.UUID); err != nil {
			return err
		}
	}
	return nil
}
