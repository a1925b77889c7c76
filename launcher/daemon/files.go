package daemon

import (
	"context"
	"fmt"

	"kurma.io/stager/launcher/copies"
	"kurma.io/stager/launcher/pods"
)

// AppFiles opens the files of an app that runs, "" for the pod's only app, with the app's volumes. The caller calls
// done.
func (d *Daemon) AppFiles(ctx context.Context, pod *pods.Pod, app string) (files copies.Tree, done func(), err error) {
	if pod.Ended() {
		return files, nil, fmt.Errorf("pod %q has ended, and the files of its apps are gone; those in a volume of the host are kept", pod.Plan.Name)
	}
	a, err := FindApp(pod, app)
	if err != nil {
		return files, nil, err
	}
	states, ok := d.askApps(ctx, pod)
	if !ok {
		return files, nil, fmt.Errorf("the stager of pod %q does not say which process is app %q", pod.Plan.Name, a.Name)
	}
	pid := states[a.Name].PID
	if pid == 0 {
		return files, nil, fmt.Errorf("app %q of pod %q does not run; the app's files cannot be reached", a.Name, pod.Plan.Name)
	}
	root, err := pod.OpenAppRoot(pid)
	if err != nil {
		return files, nil, err
	}
	return copies.In(root), func() { _ = root.Close() }, nil
}
