package daemon

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
)

// StagerWarning is what a stager has warned of. All text may be a stranger's.
type StagerWarning struct {
	App  string // that it is about; "" for the pod
	Text string
	Why  string // "" if the stager does not say
}

// Warnings returns what the pod's stager has warned of so far. Of a stager with another form of log than the reference
// stager's there are none.
func (d *Daemon) Warnings(pod *pods.Pod) []StagerWarning {
	log, err := os.Open(pod.LogPath())
	if err != nil {
		return nil // the pod has ended and is deleted
	}
	defer log.Close()
	var all []StagerWarning
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, math.MaxInt) // an image can have a long name in a warning, which must not hide the others
	for lines.Scan() {
		if w, ok := readWarning(lines.Text()); ok && !d.isOfNamedVolume(pod, w) {
			all = append(all, w)
		}
	}
	return all
}

// isOfNamedVolume reports whether a warning is that a named volume hides the image's files, although it is a copy of
// them.
func (d *Daemon) isOfNamedVolume(pod *pods.Pod, w StagerWarning) bool {
	if w.Text != "a volume hides the image's files" {
		return false
	}
	targets, err := podplan.Targets(pod.Plan)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pod.Plan.Volumes, func(v pods.Volume) bool {
		_, named := d.volumes().NameOf(v.Source)
		return named && slices.ContainsFunc(targets[v.Name], func(t podplan.Target) bool {
			return strings.HasSuffix(w.Why, " at "+t.Path)
		})
	})
}

// readWarning reads a warning of the stager's log; false for any other line.
func readWarning(line string) (StagerWarning, bool) {
	fields := parseRecord(line)
	if fields["level"] != "WARN" && fields["level"] != "ERROR" || fields["msg"] == "" {
		return StagerWarning{}, false
	}
	w := StagerWarning{App: fields["app"], Text: fields["msg"], Why: fields["error"] + fields["why"]}
	if name := fields["name"]; w.Text == "isolator" && name != "" {
		w.Text = fmt.Sprintf("isolator %s is %s", name, fields["fate"])
	}
	return w, true
}

// parseRecord reads a line of log/slog's TextHandler, the form of the reference stager's log: KEY=VALUE, values
// with spaces quoted. For any other line it returns the readable part.
func parseRecord(line string) map[string]string {
	fields := make(map[string]string)
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			return fields
		}
		value, after, _ := strings.Cut(rest, " ")
		if prefix, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(prefix) // QuotedPrefix has checked it
			after = rest[len(prefix):]
		}
		fields[key], line = value, after
	}
	return fields
}
