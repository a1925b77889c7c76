package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/template"

	"kurma.io/stager/internal/plaintext"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
)

// printPods prints a row for each pod, with whole as long as it is.
func (c *cli) printPods(infos []daemon.PodInfo, whole bool) error {
	out := c.table("UUID", "NAME", "STATE", "PID", "APPS", "PORTS", "CREATED ("+zone()+")")
	id, created := func(uuid string) string { return uuid }, localTime
	if !whole {
		id, created = func(uuid string) string { return uuid[:8] }, localMinute
		out.cut = []int{1, 2, 5, 6}
	}
	for _, info := range infos {
		if info.Damage != nil {
			out.row(id(info.UUID), info.Name, info.State, "-", "-", "-", oneLine(info.Damage))
			continue
		}
		out.row(id(info.UUID), info.Name, stateText(info), pidText(info), appsText(info),
			networks.DescribePorts(info.Ports), created(info.Created))
	}
	return out.flush()
}

// formatPods prints a line for each pod, with the template's tabs.
func (c *cli) formatPods(infos []daemon.PodInfo, format *template.Template) error {
	for _, info := range infos {
		var text strings.Builder
		if err := format.Execute(&text, info); err != nil {
			return usageError{"ps: --format: " + err.Error()}
		}
		columns := strings.Split(text.String(), "\t")
		for i, column := range columns {
			columns[i] = plaintext.Line(column)
		}
		if _, err := fmt.Fprintln(c.stdout, strings.Join(columns, "\t")); err != nil {
			return err
		}
	}
	return nil
}

func stateText(info daemon.PodInfo) string {
	text := string(info.State)
	if info.State == pods.Exited {
		text = fmt.Sprintf("%s (%s)", text, codeText(info.Code))
	}
	if info.Reason != "" {
		text += ", " + reasonText(info.Reason)
	}
	switch {
	case info.Restarts == 1:
		text += ", 1 restart"
	case info.Restarts > 1:
		text += fmt.Sprintf(", %d restarts", info.Restarts)
	}
	switch info.Health {
	case "":
	case pods.HealthStarting: // which may be taken for the pod's state
		text += ", not healthy yet"
	default:
		text += ", " + string(info.Health)
	}
	if info.DisconnectError != "" {
		text += ", still connected"
	}
	return text
}

// reasonText is why an app has ended, for a person.
func reasonText(reason string) string {
	if reason == pods.OOMKilled {
		return "out of memory"
	}
	return reason
}

func pidText(info daemon.PodInfo) string {
	if info.State == pods.Exited || info.State == pods.Dead {
		return "-"
	}
	return strconv.Itoa(info.PID)
}

// appsText is how many of the pod's apps run, of how many.
func appsText(info daemon.PodInfo) string {
	running := "?"
	if info.Running != nil {
		running = strconv.Itoa(*info.Running)
	}
	return fmt.Sprintf("%s/%d", running, len(info.Apps))
}
