package daemon

import (
	"context"
	"fmt"
	"io"

	"kurma.io/stager/launcher/copies"
	"kurma.io/stager/launcher/pods"
)

// appFiles opens the files of an app that runs, "" for the pod's only app, with the app's volumes. The caller calls
// done.
func (d *Daemon) appFiles(ctx context.Context, pod *pods.Pod, app string) (files copies.Tree, done func(), err error) {
	if pod.Ended() {
		return files, nil, fmt.Errorf("pod %q has ended, and the files of its apps are gone, except files in host volumes",
			pod.Plan.Name)
	}
	a, err := FindApp(pod, app)
	if err != nil {
		return files, nil, err
	}
	states, ok := d.askApps(ctx, pod)
	if !ok {
		return files, nil, fmt.Errorf("the stager of pod %q does not report the process of app %q", pod.Plan.Name, a.Name)
	}
	pid := states[a.Name].PID
	if pid == 0 {
		return files, nil, fmt.Errorf("app %q of pod %q is not running; its files cannot be reached", a.Name,
			pod.Plan.Name)
	}
	root, err := pod.OpenAppRoot(pid)
	if err != nil {
		return files, nil, err
	}
	return copies.In(root.File, root.Users), func() { _ = root.Close() }, nil
}

// CopyEnd is one of the two ends of a copy: a path in an app that runs, a path on the host, or a tar archive.
type CopyEnd struct {
	Pod  *pods.Pod // nil for the host
	App  string    // "" for the pod's only app
	Path string
	In   io.Reader // the archive that is unpacked into the other end; nil for none
	Out  io.Writer // the archive that is made of the other end; nil for none
}

func (d *Daemon) tree(ctx context.Context, e CopyEnd) (files copies.Tree, done func(), err error) {
	if e.Pod == nil {
		return copies.Host(), func() {}, nil
	}
	return d.appFiles(ctx, e.Pod, e.App)
}

// Copy copies files, see package copies. It calls warn for each file that is left out. A copy on the host has no
// setuid and setgid bits.
func (d *Daemon) Copy(ctx context.Context, from, to CopyEnd, warn func(string)) error {
	fromTree, done, err := d.tree(ctx, from)
	if err != nil {
		return err
	}
	defer done()
	toTree, done, err := d.tree(ctx, to)
	if err != nil {
		return err
	}
	defer done()
	var source *copies.Source // nil for an archive
	if from.In == nil {
		if source, err = fromTree.Source(from.Path); err != nil {
			return err
		}
		defer func() { _ = source.Close() }()
	}
	if to.Out != nil {
		return source.Pack(ctx, to.Out, "", warn)
	}
	target, err := toTree.Target(to.Path, source)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	if source == nil {
		return target.Unpack(from.In, to.Pod != nil, warn)
	}
	return copies.Copy(ctx, source, target, to.Pod != nil, warn)
}
