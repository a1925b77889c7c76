package main

import (
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/pods"
)

// findPod finds the pod that the first argument names and returns the other arguments.
func (c *cli) findPod(command string, args []string) (*pods.Pod, []string, error) {
	if len(args) == 0 {
		return nil, nil, usageError{command + ": want a POD"}
	}
	pod, err := c.daemon.FindPod(args[0])
	return pod, args[1:], err
}

// findApp finds the app that POD [APP] names.
func (c *cli) findApp(command string, args []string) (*pods.Pod, pods.App, error) {
	pod, rest, err := c.findPod(command, args)
	if err != nil {
		return nil, pods.App{}, err
	}
	if len(rest) > 1 {
		return nil, pods.App{}, usageError{command + ": want POD [APP]"}
	}
	a, err := app(pod, rest)
	return pod, a, err
}

// app returns the app that is named, or the pod's only one.
func app(pod *pods.Pod, names []string) (pods.App, error) {
	if len(names) == 0 {
		return daemon.FindApp(pod, "")
	}
	return daemon.FindApp(pod, names[0])
}

// appNames returns the name of the app that the arguments name, or the names of all apps.
func appNames(pod *pods.Pod, names []string) ([]string, error) {
	if len(names) == 0 {
		return daemon.AppNames(pod), nil
	}
	a, err := daemon.FindApp(pod, names[0])
	return []string{a.Name}, err
}
