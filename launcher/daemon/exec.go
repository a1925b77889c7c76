package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
)

// Command is a command in an app. What is empty is the app's.
type Command struct {
	Exec             []string
	User, Group      string // names or numbers; a User without a Group has the user's own groups
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

// CommandSettings returns the settings of the call-in run for the command in that app. A user without a group has the
// groups of the files in the app's root.
func (d *Daemon) CommandSettings(ctx context.Context, pod *pods.Pod, app pods.App, c Command) ([]byte, error) {
	s := c.settings(app)
	if c.User != "" && c.Group == "" {
		files, done, err := d.AppFiles(ctx, pod, app.Name)
		if err != nil {
			return nil, err
		}
		defer done()
		accounts, err := images.ReadAccounts(func(path string) ([]byte, error) { return files.ReadFile(path, images.MaxAccounts) })
		if err != nil {
			return nil, fmt.Errorf("look up user %q: %w", c.User, err)
		}
		if account, ok := accounts.Find(c.User); ok { // else a file's owner, or a name that the stager refuses
			s.Group, s.SupplementaryGID = account.Group, account.Groups
		}
	}
	return json.Marshal(s)
}

// settings returns the settings without the user's own groups.
func (c Command) settings(app pods.App) commandSettings {
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
	return s
}

// Exec runs a command in an app and returns its exit status: 126 if it is not executable and 127 if it is not there,
// as in a shell; 125 if the stager could not run it. When ctx ends, the command is killed.
func (d *Daemon) Exec(ctx context.Context, pod *pods.Pod, app pods.App, c Command, stdio [3]*os.File) (int, error) {
	settings, err := d.CommandSettings(ctx, pod, app, c)
	if err != nil {
		return 0, err
	}
	return pod.Execute(ctx, stdio, settings, "run", app.Name)
}
