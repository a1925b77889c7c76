package daemon

import (
	"context"
	"encoding/json"
	"os"
	"slices"

	"kurma.io/stager/launcher/pods"
)

// Command is a command in an app. What is empty is the app's.
type Command struct {
	Exec             []string
	User, Group      string // names or numbers
	WorkingDirectory string
	Environment      []pods.Environment // added to the app's
	TTY              bool               // a terminal of its own
	Terminal         string             // TERM, for a command with a terminal whose app has none
}

// commandSettings are the settings of the stager's call-in run.
type commandSettings struct {
	Exec             []string           `json:"exec"`
	User             string             `json:"user"`
	Group            string             `json:"group"`
	SupplementaryGID []int              `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory string             `json:"workingDirectory,omitempty"`
	Environment      []pods.Environment `json:"environment,omitempty"`
	TTY              bool               `json:"tty,omitempty"`
}

// Settings returns the settings of the call-in run for the command in that app.
func (c Command) Settings(app pods.App) ([]byte, error) {
	s := commandSettings{
		Exec:             c.Exec,
		User:             app.User,
		Group:            app.Group,
		SupplementaryGID: app.SupplementaryGID,
		WorkingDirectory: app.WorkingDirectory,
		Environment:      slices.Clone(app.Environment),
		TTY:              c.TTY,
	}
	if c.User != "" {
		s.User = c.User
	}
	if c.Group != "" {
		s.Group, s.SupplementaryGID = c.Group, nil
	}
	if c.WorkingDirectory != "" {
		s.WorkingDirectory = c.WorkingDirectory
	}
	for _, e := range c.Environment {
		s.Environment = slices.DeleteFunc(s.Environment, func(old pods.Environment) bool { return old.Name == e.Name })
		s.Environment = append(s.Environment, e)
	}
	has := slices.ContainsFunc(s.Environment, func(e pods.Environment) bool { return e.Name == "TERM" })
	if c.TTY && !has && c.Terminal != "" {
		s.Environment = append(s.Environment, pods.Environment{Name: "TERM", Value: c.Terminal})
	}
	return json.Marshal(s)
}

// Exec runs a command in an app and returns its exit status: 126 if it is not executable and 127 if it is not there,
// as in a shell; 125 if the stager could not run it. When ctx ends, the command is killed.
func (d *Daemon) Exec(ctx context.Context, pod *pods.Pod, app pods.App, c Command, stdio [3]*os.File) (int, error) {
	settings, err := c.Settings(app)
	if err != nil {
		return 0, err
	}
	return pod.Execute(ctx, stdio, settings, "run", app.Name)
}
