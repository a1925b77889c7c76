package main

import (
	"context"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/coreos/go-systemd/v22/journal"
)

// ownCgroup is the value of --cgroup-parent for the cgroup that the launcher is in, see cgroups.EnterService.
const ownCgroup = "own"

// notify reports a state of the pod to the service manager, if one has started the launcher and asks for
// it (sd_notify(3)). A service manager that does not listen does not stop the pod.
func (c *cli) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		c.warn("report to the service manager: " + err.Error())
	}
}

// isInJournal reports whether systemd's journal is stdout and stderr of a command without --json: a service manager
// has started the launcher.
func (c *cli) isInJournal() bool {
	stdout, _ := journal.StdoutIsJournalStream()
	stderr, _ := journal.StderrIsJournalStream()
	return stdout && stderr && !c.json
}

// sendLogs is showLogs for the journal: each line is an entry with the fields that the stager's own entries have
// (log.driver in stagerConfig). A line that the journal does not take as an entry goes to stdout or stderr, as without
// fields.
func (c *cli) sendLogs(ctx context.Context, pod *pods.Pod, apps []string, o logsOptions) error {
	printer := c.newLinePrinter(apps, false)
	return c.daemon.LogLines(ctx, pod, apps, o.LogOptions, func(line daemon.LogLine) error {
		priority := journal.PriInfo
		if line.Stream == "stderr" {
			priority = journal.PriErr
		}
		err := journal.Send(line.Text, priority, map[string]string{
			"SYSLOG_IDENTIFIER": line.App,
			"KURMA_APP":         line.App,
			"KURMA_POD":         pod.Plan.Name,
			"KURMA_POD_UUID":    pod.Plan.UUID,
		})
		if err == nil {
			return nil
		}
		return printer.print(line)
	})
}
