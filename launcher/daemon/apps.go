package daemon

import (
	"errors"
	"fmt"
	"strings"

	"kurma.io/stager/launcher/pods"
)

// ErrSeveralApps says that one of a pod's apps must be named.
var ErrSeveralApps = errors.New("several apps, choose one")

// FindApp returns the pod's app of that name, or for "" the pod's only app; a pod with more is ErrSeveralApps.
func FindApp(pod *pods.Pod, name string) (pods.App, error) {
	if name == "" && len(pod.Plan.Apps) == 1 {
		return pod.Plan.Apps[0], nil
	}
	for _, app := range pod.Plan.Apps {
		if app.Name == name {
			return app, nil
		}
	}
	have := strings.Join(AppNames(pod), ", ")
	if name == "" {
		return pods.App{}, fmt.Errorf("pod %q has %w: %s", pod.Plan.Name, ErrSeveralApps, have)
	}
	return pods.App{}, fmt.Errorf("pod %q has no app %q; want %s", pod.Plan.Name, name, have)
}

// AppNames returns the names of the pod's apps, in the pod's order.
func AppNames(pod *pods.Pod) []string {
	names := []string{}
	for _, app := range pod.Plan.Apps {
		names = append(names, app.Name)
	}
	return names
}
