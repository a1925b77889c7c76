package main

import (
	"context"
	"encoding/json"
	"errors"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/cobra"
)

// inspectedPod is what `inspect` prints of a pod.
type inspectedPod struct {
	daemon.PodInfo
	Status   json.RawMessage `json:"status,omitempty"` // of the apps, as status --json prints it
	Plan     pods.Plan       `json:"plan"`
	Monitor  int             `json:"monitor,omitempty"` // PID of the launcher that watches the pod
	Manifest json.RawMessage `json:"manifest"`          // the Stager Manifest
}

// inspectedImage is what `inspect` prints of an image.
type inspectedImage struct {
	daemon.Image
	Manifest json.RawMessage `json:"manifest"`
}

// inspectCommand is `inspect`.
func inspectCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect POD | IMAGE",
		Short: "print the full record of a pod or image, as JSON",
		Long: `inspect prints the plan, state and manifest of a pod, or the record and manifest of an image: indented, or with
--json in one line. A pod overrides an image of the same name.`,
		Args:              wants(1, 1, "a POD or IMAGE"),
		ValidArgsFunction: c.completePods(1, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.inspect(cmd.Context(), args[0]) },
	}
}

func (c *cli) inspect(ctx context.Context, ref string) error {
	found, err := c.findForInspection(ctx, ref)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(found)
	}
	return c.printIndented(found, "  ")
}

func (c *cli) findForInspection(ctx context.Context, ref string) (any, error) {
	pod, err := c.daemon.FindPod(ref)
	if err == nil {
		info := inspectedPod{
			PodInfo: c.daemon.Describe(ctx, pod)[0], Plan: pod.Plan, Manifest: pod.Plan.Manifest,
			Monitor: pod.State.Monitor.PID,
		}
		info.Plan.Manifest = nil
		limited, cancel := context.WithTimeout(ctx, daemon.AnswerTime)
		defer cancel()
		if status, err := c.daemon.Status(limited, pod); err == nil {
			info.Status = status.Document
		}
		return info, nil
	}
	if !errors.Is(err, pods.ErrNotFound) {
		return nil, err
	}
	image, err := c.daemon.FindImage(ref)
	if errors.Is(err, images.ErrNotFound) {
		return nil, neitherFound(ref)
	}
	return inspectedImage{image, image.Manifest}, err
}

// neitherFound is the error of a reference that is neither a pod's nor an image's.
func neitherFound(ref string) error {
	return errors.New("no such pod or image: " + quoted(ref) + "; launcher ps --all and launcher image list list them")
}
