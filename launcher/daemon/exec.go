package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// Command is a command in an app. What is empty is the app's.
type Command struct {
	Exec             []string
	User, Group      string // names or numbers; a User without a Group has the user's own groups
	WorkingDirectory string
	Environment      []pods.Environment // added to the app's; the last of a name counts
	TTY              bool               // a terminal of its own
	Terminal         string             // TERM, for a command with a terminal in an app without the variable
}

// commandSettings returns the settings of the call-in run for the command in that app. A user without a group has the
// groups of the files in the app's root.
func (d *Daemon) commandSettings(ctx context.Context, pod *pods.Pod, app pods.App, c Command) ([]byte, error) {
	s := c.settings(app)
	if c.User != "" && c.Group == "" {
		files, done, err := d.appFiles(ctx, pod, app.Name)
		if err != nil {
			return nil, err
		}
		defer done()
		read := func(path string) ([]byte, error) { return files.ReadFile(path, images.MaxAccounts) }
		accounts, err := images.ReadAccounts(read)
		if err != nil {
			return nil, fmt.Errorf("look up user %q: %w", c.User, err)
		}
		if account, ok := accounts.Find(c.User); ok { // else a file's owner, or a name that the stager refuses
			s.Group, s.SupplementaryGID = account.Group, account.Groups
		}
	}
	return s.Encode()
}

// settings returns the settings without the user's own groups. The stager adds the app's environment: it may be larger
// than settings may be.
func (c Command) settings(app pods.App) pods.RunSettings {
	s := pods.RunSettings{
		Exec:             c.Exec,
		User:             cmp.Or(c.User, app.User),
		Group:            cmp.Or(c.Group, app.Group),
		SupplementaryGID: app.SupplementaryGID,
		WorkingDirectory: cmp.Or(c.WorkingDirectory, app.WorkingDirectory),
		TTY:              c.TTY,
	}
	if c.Group != "" {
		s.SupplementaryGID = nil
	}
	for _, e := range c.Environment {
		s.Environment = slices.DeleteFunc(s.Environment, func(old pods.Environment) bool { return old.Name == e.Name })
		s.Environment = append(s.Environment, e)
	}
	return s
}

// Caller is who calls into a pod: stdin, stdout and stderr of the call, and the signals that are passed to it, nil for
// none. The call gets the files themselves: a terminal stays a terminal.
type Caller struct {
	Name    string // what messages of Exec begin with, "" for "run"
	Stdio   [3]*os.File
	Signals <-chan os.Signal
}

// Exec runs a command in an app and returns its exit status: 126 if it is not executable and 127 if it is not there,
// as in a shell; 125 if the stager could not run it. When ctx ends, the command is killed.
func (d *Daemon) Exec(ctx context.Context, pod *pods.Pod, app pods.App, c Command, caller Caller) (int, error) {
	settings, err := d.commandSettings(ctx, pod, app, c)
	if err != nil {
		return 0, err
	}
	call := pods.Call{
		Name: names.Run, Args: []string{app.Name}, Stdio: caller.Stdio, Settings: settings,
		Signals: caller.Signals,
	}
	if caller.Name != "" {
		call.Env = append(call.Env, names.RunNameVariable+"="+caller.Name)
	}
	if c.TTY && c.Terminal != "" {
		call.Env = append(call.Env, "TERM="+c.Terminal)
	}
	return pod.Execute(ctx, call)
}

// Attach passes the app's output to the caller, and input to the app if its stdin is open, until the app ends. It
// returns the app's exit status. When ctx ends, the caller is disconnected and the app runs on.
func (d *Daemon) Attach(ctx context.Context, pod *pods.Pod, app string, caller Caller) (int, error) {
	return d.Call(ctx, pod, caller, names.Attach, app)
}

// Call executes a call-in of the pod's stager by its name, a file name, and returns its exit status. When ctx
// ends, the call-in is killed.
func (d *Daemon) Call(ctx context.Context, pod *pods.Pod, caller Caller, name string, args ...string) (int, error) {
	return pod.Execute(ctx, pods.Call{Name: name, Args: args, Stdio: caller.Stdio, Signals: caller.Signals})
}
