package main

import (
	"context"

	"kurma.io/stager/launcher/metrics"

	"github.com/spf13/cobra"
)

// metricsCommand is `metrics`.
func metricsCommand(c *cli) *cobra.Command {
	listen := ""
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "print or serve metrics of apps and pods for Prometheus",
		Long: `metrics prints what the apps of all live pods use, and what their pods' networks have carried: the metrics of
cAdvisor, in the text format of Prometheus. With --listen it serves them as /metrics until SIGINT or SIGTERM, and reads
them anew for each request. A socket is root's alone; every user of the machine can connect to a loopback address.`,
		Example:           "  launcher metrics --listen 127.0.0.1:9102",
		Args:              wants(0, 0, "no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return c.metrics(cmd.Context(), listen) },
	}
	cmd.Flags().StringVar(&listen, "listen", "", "serve at `ADDRESS`: 127.0.0.1:PORT, [::1]:PORT or unix:///PATH")
	return cmd
}

func (c *cli) metrics(ctx context.Context, listen string) error {
	if listen == "" {
		text := new(metrics.Text)
		if err := c.daemon.Metrics(text); err != nil {
			return err
		}
		_, err := text.WriteTo(c.stdout)
		return err
	}
	stop, err := metrics.Serve(listen, c.daemon.Metrics)
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	return nil // a service that is stopped has not failed
}
