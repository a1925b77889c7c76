package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// generateCommand is `generate`.
func generateCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "generate POD",
		Short: "print the manifest of a pod, and the lines that make it a service",
		Long: `generate prints the pod manifest that starts a pod like this one, such as a pod that was started by options of
run: with its ports, volumes, labels and limits. On stderr it prints the options of run that no manifest has, and
the lines that make the pod a service. With --json it prints an object with the manifest and the options.

The image of a pod that was started by options is named as it was then, other images by their IDs. A port of the host
that run has chosen is the manifest's.`,
		Example: `  launcher generate web >web.json
  launcher generate web >/etc/kurma/pods/web.json`,
		Args:              wants(1, 1, "a POD"),
		ValidArgsFunction: c.completePods(1, false),
		RunE:              func(_ *cobra.Command, args []string) error { return c.generate(args[0]) },
	}
}

func (c *cli) generate(ref string) error {
	pod, err := c.daemon.FindPod(ref)
	if err != nil {
		return err
	}
	g, err := c.daemon.Generate(pod)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(g)
	}
	if err := c.printIndented(g.Manifest, "  "); err != nil {
		return err
	}
	if g.MakesFolder {
		c.warn("no manifest and no option asks for the working directory that --workdir has made, but " +
			"makeWorkingDirectory in defaultStagerConfig does")
	}
	name, options := pod.Plan.Name, strings.Join(g.Options, " ")
	if options != "" {
		c.say(fmt.Sprintf("no manifest has these options: launcher run --detach %s %s.json", options, name))
	}
	lines := []string{"launcher generate " + name + " >/etc/kurma/pods/" + name + ".json"}
	if options != "" {
		lines = append(lines, "echo 'OPTIONS="+options+"' >/etc/kurma/pods/"+name+".env")
	}
	lines = append(lines, "launcher stop "+name, "systemctl enable --now kurma-pod@"+name+".service")
	c.say("these lines make the pod a service:")
	for _, line := range lines {
		fmt.Fprintln(c.stderr, " ", printable(line))
	}
	return nil
}
