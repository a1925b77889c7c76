package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// appStatus is an app in the document of the call-in status.
type appStatus struct {
	PID    int    `json:"pid"`
	Exited bool   `json:"exited"`
	Ending bool   `json:"ending"`
	Code   int    `json:"exitCode"`
	Reason string `json:"exitReason"`
}

// statusCommand is `status`: a table, or with --json the call-in's own document.
func statusCommand(c *cli) *cobra.Command {
	isolators := false
	cmd := &cobra.Command{
		Use:   "status POD [APP]",
		Short: "show the apps of a pod",
		Long: `status shows the state of a pod's apps. With --isolators it prints whether each isolator of an app is
enforced, changed or ignored.`,
		ValidArgsFunction: c.completePods(1, true),
		RunE:              func(_ *cobra.Command, args []string) error { return c.status(args, isolators) },
	}
	cmd.Flags().BoolVar(&isolators, "isolators", false, "print whether each isolator of an app is enforced, changed or ignored, as JSON")
	return cmd
}

func (c *cli) status(args []string, isolators bool) error {
	pod, rest, err := c.findPod("status", args)
	if err != nil {
		return err
	}
	if isolators && len(rest) <= 1 {
		a, err := app(pod, rest)
		if err != nil {
			return err
		}
		return pod.Become("status", "--isolators", a.Name)
	}
	if len(rest) > 0 {
		return usageError{"status: want one POD, or --isolators POD [APP]"}
	}
	data, err := c.capture(pod, "status")
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(json.RawMessage(data)) // the encoder makes it one line
	}
	var apps map[string]appStatus
	if err := json.Unmarshal(data, &apps); err != nil {
		return fmt.Errorf("read status of pod %q: %w", pod.Plan.Name, err)
	}
	return c.printStatus(pod, apps)
}

// capture runs a call-in and returns what it wrote to its stdout.
func (c *cli) capture(pod *pods.Pod, name string) ([]byte, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	var out bytes.Buffer
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(&out, read)
		copied <- err
	}()
	stdio := c.stdio()
	stdio[1] = write
	code, err := pod.Call(stdio, nil, name)
	_ = write.Close()
	if err != nil {
		return nil, err
	}
	if err := <-copied; err != nil {
		return nil, err
	}
	if code != 0 {
		return nil, exitError{code}
	}
	return out.Bytes(), nil
}

func (c *cli) printStatus(pod *pods.Pod, apps map[string]appStatus) error {
	out := tabwriter.NewWriter(c.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(out, "APP\tSTATE\tPID\tEXIT\tREASON")
	for _, name := range appNames(pod) {
		a := apps[name]
		switch {
		case a.Exited:
			fmt.Fprintf(out, "%s\texited\t-\t%d\t%s\n", name, a.Code, dash(a.Reason))
		case a.Ending:
			fmt.Fprintf(out, "%s\tending\t-\t-\t-\n", name)
		case a.PID == 0:
			fmt.Fprintf(out, "%s\tstarting\t-\t-\t-\n", name)
		default:
			fmt.Fprintf(out, "%s\trunning\t%d\t-\t-\n", name, a.PID)
		}
	}
	return out.Flush()
}
