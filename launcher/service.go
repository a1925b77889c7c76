package main

import (
	"context"

	"kurma.io/stager/boot/journal"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	streams "github.com/coreos/go-systemd/v22/journal"
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
	stdout, _ := streams.StdoutIsJournalStream()
	stderr, _ := streams.StderrIsJournalStream()
	return stdout && stderr && !c.json
}

// sendLogs is showLogs for the journal.
func (c *cli) sendLogs(ctx context.Context, pod *pods.Pod, apps []string, o logsOptions) error {
	sender := &journalSender{
		linePrinter: c.newLinePrinter(apps, false), path: names.JournalSocket,
		pod: journal.Origin{Name: pod.Plan.Name, UUID: pod.Plan.UUID},
	}
	return c.daemon.LogLines(ctx, pod, apps, o.LogOptions, sender.send)
}

// journalSender sends lines of logs to the journal at path. Each line, or part of a long one, is an entry with the
// fields that the stager's own entries have (log.driver in stagerConfig).
type journalSender struct {
	*linePrinter

	path string
	pod  journal.Origin
}

// send prints, without fields, a line that the journal does not take as an entry, and a message of the stager's
// call-in.
func (s *journalSender) send(line daemon.LogLine) error {
	priority := journal.Info
	if line.Stream == "stderr" {
		priority = journal.Error
	}
	if line.Stamp != "" && journal.Send(s.path, s.pod, line.App, priority, line.Text) == nil {
		return nil
	}
	return s.print(line)
}
