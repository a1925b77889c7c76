package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/pods"
)

// showWarnings prints what the stager has warned of while the pod started: the person who has started
// it would have to look into the stager's log for it.
func (c *cli) showWarnings(pod *pods.Pod) {
	log, err := os.Open(pod.LogPath())
	if err != nil {
		return // the pod has ended and is deleted
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if text := warningText(lines.Text()); text != "" {
			c.warn(fmt.Sprintf("pod %q: %s", pod.Plan.Name, text))
		}
	}
}

// warningText returns a warning of the stager's log for a person, and "" for any other line. Another
// stager may log in another form: then nothing is shown.
func warningText(line string) string {
	fields := parseRecord(line)
	if fields["level"] != "WARN" && fields["level"] != "ERROR" || fields["msg"] == "" {
		return ""
	}
	text := fields["msg"]
	if name := fields["name"]; text == "isolator" && name != "" {
		text = fmt.Sprintf("isolator %s is %s", printable(name), printable(fields["fate"]))
	}
	if app := fields["app"]; app != "" {
		text = fmt.Sprintf("app %q: %s", app, text)
	}
	text = printable(text)
	if why := fields["error"] + fields["why"]; why != "" {
		text += ": " + printable(why)
	}
	return text
}

// parseRecord reads a line of log/slog's TextHandler, the form of the reference stager's log: KEY=VALUE, values
// with spaces quoted. It returns what it can read of any other line.
func parseRecord(line string) map[string]string {
	fields := make(map[string]string)
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			return fields
		}
		value := ""
		if prefix, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(prefix) // QuotedPrefix has checked it
			line = rest[len(prefix):]
		} else {
			value, line, _ = strings.Cut(rest, " ")
		}
		fields[key] = value
	}
	return fields
}
