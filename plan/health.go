package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/spec"
)

// A health check without annotations for it is as Docker's.
const (
	healthInterval = 30 * time.Second
	healthTimeout  = 30 * time.Second
	healthRetries  = 3
)

// MinHealthInterval is the least time between the checks of an app: each makes a process.
const MinHealthInterval = time.Second

// noHealthCheck as command means that the image's check is not made.
const noHealthCheck = "none"

// healthSetting is an annotation of a health check.
type healthSetting struct {
	annotation string
	want       string // what its value must be
	read       func(c *spec.HealthCheck, value string) bool
}

// healthSettings are the annotations of a health check, the command first.
func healthSettings() []healthSetting {
	since := func(least time.Duration, to func(*spec.HealthCheck) *time.Duration) func(*spec.HealthCheck, string) bool {
		return func(c *spec.HealthCheck, value string) bool {
			d, err := time.ParseDuration(value)
			*to(c) = d
			return err == nil && d >= least
		}
	}
	return []healthSetting{
		{
			names.HealthCommandAnnotation,
			`must be a command for the app's shell, a program and its arguments as a JSON array, or "none"`,
			func(c *spec.HealthCheck, value string) (ok bool) {
				c.Command.Args, ok = healthCommand(value)
				return ok
			},
		},
		{
			names.HealthIntervalAnnotation, `must be a duration of at least 1s, such as "30s"`,
			since(MinHealthInterval, func(c *spec.HealthCheck) *time.Duration { return &c.Interval }),
		},
		{
			names.HealthTimeoutAnnotation, `must be a duration longer than 0, such as "10s"`,
			since(1, func(c *spec.HealthCheck) *time.Duration { return &c.Timeout }),
		},
		{
			names.HealthRetriesAnnotation, "must be a number of at least 1",
			func(c *spec.HealthCheck, value string) bool {
				n, err := strconv.ParseUint(value, 10, 31)
				c.Retries = int(n)
				return err == nil && n > 0
			},
		},
		{
			names.HealthStartPeriodAnnotation, `must be a duration that is not negative, such as "1m"`,
			since(0, func(c *spec.HealthCheck) *time.Duration { return &c.StartPeriod }),
		},
		{
			names.HealthOnFailureAnnotation, `must be "none" or "restart"`,
			func(c *spec.HealthCheck, value string) bool {
				c.Restart = value == "restart"
				return c.Restart || value == "none"
			},
		},
		{
			names.HealthReadyAnnotation, `must be "true" or "false"`,
			func(c *spec.HealthCheck, value string) bool {
				c.Ready = value == "true"
				return c.Ready || value == "false"
			},
		},
	}
}

// CheckHealth returns what is wrong with the value of an annotation of a health check.
func CheckHealth(annotation, value string) error {
	for _, s := range healthSettings() {
		if s.annotation == annotation && !s.read(new(spec.HealthCheck), value) {
			return errors.New(s.want)
		}
	}
	return nil
}

// healthCommand reads the command of a health check, nil for none; false if the text is no command. A text that begins
// as a JSON array is one, as in a container file.
func healthCommand(text string) ([]string, bool) {
	switch {
	case text == noHealthCheck:
		return nil, true
	case strings.HasPrefix(text, "["):
		var words []string
		err := json.Unmarshal([]byte(text), &words)
		hasNUL := slices.ContainsFunc(words, func(w string) bool { return strings.ContainsRune(w, 0) })
		return words, err == nil && len(words) > 0 && words[0] != "" && !hasNUL
	default:
		return []string{"/bin/sh", "-c", text}, strings.TrimSpace(text) != "" && !strings.ContainsRune(text, 0)
	}
}

// healthCheck returns an app's health check, nil for none. Each annotation of the app overrides the image's. The
// command runs as the app does, with these variables.
func healthCheck(app manifest.App, variables []string) (*spec.HealthCheck, error) {
	check := &spec.HealthCheck{
		Command: spec.Command{
			Env: commandEnv(variables), User: app.App.User, Group: app.App.Group, Dir: app.App.WorkingDirectory,
			SupplementaryGID: slices.Clone(app.App.SupplementaryGIDs),
		},
		Interval: healthInterval, Timeout: healthTimeout, Retries: healthRetries,
	}
	own := ""
	for _, s := range healthSettings() {
		if _, found := app.Runtime.Annotations.Get(s.annotation); found {
			own = s.annotation
		}
		if value, found := annotationOf(app, s.annotation); found && !s.read(check, value) {
			return nil, fmt.Errorf("annotation %s: %q: %s", s.annotation, value, s.want)
		}
	}
	if _, found := annotationOf(app, names.HealthCommandAnnotation); !found && own != "" {
		return nil, fmt.Errorf("annotation %s: the app has no %s", own, names.HealthCommandAnnotation)
	}
	if check.Command.Args == nil {
		return nil, nil
	}
	return check, nil
}
