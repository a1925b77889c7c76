package main

import (
	"fmt"
	"strings"

	"kurma.io/stager/launcher/pods"
)

// findPod finds the pod that the first argument names and returns the other arguments.
func (c *cli) findPod(command string, args []string) (*pods.Pod, []string, error) {
	if len(args) == 0 {
		return nil, nil, usageError{command + ": want a POD"}
	}
	store, err := c.pods()
	if err != nil {
		return nil, nil, err
	}
	pod, err := store.Find(args[0])
	return pod, args[1:], err
}

// app returns the app that is named, or the pod's only one.
func app(pod *pods.Pod, names []string) (pods.App, error) {
	if len(names) == 0 && len(pod.Plan.Apps) == 1 {
		return pod.Plan.Apps[0], nil
	}
	for _, a := range pod.Plan.Apps {
		if len(names) > 0 && a.Name == names[0] {
			return a, nil
		}
	}
	have := strings.Join(appNames(pod), ", ")
	if len(names) == 0 {
		return pods.App{}, usageError{fmt.Sprintf("pod %q has several apps, choose one: %s", pod.Plan.Name, have)}
	}
	return pods.App{}, fmt.Errorf("pod %q has no app %q; it has %s", pod.Plan.Name, names[0], have)
}

func appNames(pod *pods.Pod) []string {
	names := []string{}
	for _, app := range pod.Plan.Apps {
		names = append(names, app.Name)
	}
	return names
}
