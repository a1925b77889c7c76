package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// appStatus is an app in the document of the call-in status.
type appStatus struct {
	PID    int    `json:"pid"`
	Exited bool   `json:"exited"`
	Ending bool   `json:"ending"`
	Code   *int   `json:"exitCode"` // nil if it is not known
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
		RunE:              func(cmd *cobra.Command, args []string) error { return c.status(cmd.Context(), args, isolators) },
	}
	cmd.Flags().BoolVar(&isolators, "isolators", false, "print whether each isolator of an app is enforced, changed or ignored, as JSON")
	return cmd
}

func (c *cli) status(ctx context.Context, args []string, isolators bool) error {
	pod, rest, err := c.findPod("status", args)
	if err != nil {
		return err
	}
	if isolators && len(rest) <= 1 {
		a, err := app(pod, rest)
		if err != nil {
			return err
		}
		if !c.json {
			return pod.Become("status", "--isolators", a.Name)
		}
		data, err := c.capture(pod, c.stderr, "status", "--isolators", a.Name)
		if err != nil {
			return err
		}
		return c.printJSON(json.RawMessage(data))
	}
	if len(rest) > 0 {
		return usageError{"status: want one POD, or --isolators POD [APP]"}
	}
	data, err := c.statusDocument(ctx, pod)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(json.RawMessage(data)) // the encoder makes it one line
	}
	apps, err := readStatus(pod, data)
	if err != nil {
		return err
	}
	return c.printStatus(pod, apps)
}

func readStatus(pod *pods.Pod, document []byte) (map[string]appStatus, error) {
	var apps map[string]appStatus
	if err := json.Unmarshal(document, &apps); err != nil {
		return nil, fmt.Errorf("read status of pod %q: %w", pod.Plan.Name, err)
	}
	return apps, nil
}

// endingTime is how long a stager that no longer answers may take to end.
const endingTime = 2 * time.Second

// statusDocument returns what the stager of a live pod answers, or the last states of the
// apps of a pod that has ended. If the pod ends meanwhile it waits for that: a pod is
// alive or has ended, and nothing else.
func (c *cli) statusDocument(ctx context.Context, pod *pods.Pod) ([]byte, error) {
	if pod.State.Phase != pods.Exited {
		var words bytes.Buffer
		data, err := c.capture(pod, &words, "status")
		if err == nil {
			return data, nil
		}
		if pod.State.Phase == pods.Dead || !pod.Ends(ctx, endingTime) {
			_, _ = plaintext.NewWriter(c.stderr).Write(words.Bytes()) // what the call-in has said
			return nil, err
		}
		if err := pod.AwaitEnd(ctx); err != nil {
			return nil, err
		}
	}
	// In the pod's order, as the stager has it.
	last := pod.LastStatus()
	var text bytes.Buffer
	for i, name := range appNames(pod) {
		state, err := json.Marshal(last[name])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%c%q:%s", "{,"[min(i, 1)], name, state)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}

// capture runs a call-in and returns what it wrote to its stdout; stderr receives the rest.
func (c *cli) capture(pod *pods.Pod, stderr io.Writer, name string, args ...string) ([]byte, error) {
	var out bytes.Buffer
	code, err := c.callInto(pod, &out, stderr, name, args...)
	if err == nil && code != 0 {
		err = exitError{code}
	}
	return out.Bytes(), err
}

// callInto runs a call-in whose output goes to writers, and returns its exit status.
func (c *cli) callInto(pod *pods.Pod, stdout, stderr io.Writer, name string, args ...string) (int, error) {
	written := [2]io.Writer{stdout, stderr}
	stdio := c.stdio()
	copied := make(chan error, len(written))
	for i, to := range written {
		read, write, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		defer read.Close()
		defer write.Close()
		stdio[i+1] = write
		go func() {
			_, err := io.Copy(to, read)
			copied <- err
		}()
	}
	code, err := pod.Call(stdio, nil, name, args...)
	for i := range written {
		_ = stdio[i+1].Close()
	}
	if err != nil {
		return 0, err
	}
	for range written {
		err = errors.Join(err, <-copied)
	}
	return code, err
}

func (c *cli) printStatus(pod *pods.Pod, apps map[string]appStatus) error {
	out := c.table("APP", "STATE", "PID", "EXIT", "REASON")
	for _, name := range appNames(pod) {
		a := apps[name]
		switch {
		case a.Exited && a.Code == nil && pod.Killed():
			out.row(name, "exited", "-", "?", "ended with its stager")
		case a.Exited && a.Code == nil:
			out.row(name, "exited", "-", "?", "its last state was not kept")
		case a.Exited:
			out.row(name, "exited", "-", *a.Code, a.Reason)
		case a.Ending:
			out.row(name, "ending", "-", "-", "-")
		case a.PID == 0:
			out.row(name, "starting", "-", "-", "-")
		default:
			out.row(name, "running", a.PID, "-", "-")
		}
	}
	return out.flush()
}
