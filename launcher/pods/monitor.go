package pods

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"kurma.io/stager/launcher/cgroups"
	"kurma.io/stager/rmtree"
)

// Run launches the pod that Create has made and stays with it, as its monitor,
// until its stager has ended and everything is taken down: processes,
// mounts, cgroups, namespaces, the root. Ready is called once, when the stager has
// closed its descriptor; its error stops the pod. When ctx ends the stager is
// asked to stop (SIGTERM) and killed when it does not in time.
//
// A stager that ends before it is ready is an error that carries its own last
// words; nothing is left of the pod then. Afterwards the pod's folder is gone
// too, unless keep is set and the stager ended unasked: then plan, state and logs stay.
func (p *Pod) Run(ctx context.Context, keep bool, ready func() error) (Exit, error) {
	group, err := cgroups.Open(p.Plan.Cgroup)
	if err != nil {
		return Exit{}, errors.Join(fmt.Errorf("launch pod %q: %w", p.Plan.Name, err), p.removeDir())
	}
	exit, err := p.run(ctx, group, ready)
	if err != nil {
		err = fmt.Errorf("launch pod %q: %w", p.Plan.Name, err)
	}
	unasked := err == nil && ctx.Err() == nil
	return exit, errors.Join(err, p.takeDown(group, exit, keep && unasked))
}

func (p *Pod) run(ctx context.Context, group *cgroups.Group, ready func() error) (Exit, error) {
	self, err := identify(os.Getpid())
	if err != nil {
		return Exit{}, err
	}
	p.State.Monitor = self
	if err := errors.Join(p.save(), p.makeRoot(), group.Make()); err != nil {
		return Exit{}, err
	}
	s, err := p.launch(group)
	if err != nil {
		return Exit{}, err
	}
	p.State.Stager = s.Process
	if err := p.save(); err != nil {
		return p.stop(s, group), err
	}
	select {
	case <-ctx.Done():
		return p.stop(s, group), context.Cause(ctx)
	case exit := <-s.exited:
		return exit, p.endedEarly(exit, ready)
	case err := <-s.ready:
		if err != nil {
			return p.stop(s, group), fmt.Errorf("wait for the stager to be ready: %w", err)
		}
	}
	// The end closes the descriptor too.
	if s.ended() {
		exit := <-s.exited
		return exit, p.endedEarly(exit, ready)
	}
	return p.stay(ctx, s, group, ready)
}

// stay waits for the end of a pod that is up.
func (p *Pod) stay(ctx context.Context, s *stager, group *cgroups.Group, ready func() error) (Exit, error) {
	p.State.Phase = Running
	if err := p.save(); err != nil {
		return p.stop(s, group), err
	}
	if err := ready(); err != nil {
		return p.stop(s, group), err
	}
	select {
	case exit := <-s.exited:
		return exit, nil
	case <-ctx.Done():
		return p.stop(s, group), nil
	}
}

// stop is what Kurma does to stop a pod: SIGTERM for the stager, and SIGKILL
// for all the pod when that has not ended it in time.
func (p *Pod) stop(s *stager, group *cgroups.Group) Exit {
	p.State.Phase = Stopping
	_ = p.save() // for ps only
	_ = s.signal(syscall.SIGTERM)
	late := time.NewTimer(p.Plan.StopTimeout)
	defer late.Stop()
	select {
	case exit := <-s.exited:
		return exit
	case <-late.C:
	}
	_ = s.signal(syscall.SIGKILL)
	_ = group.Kill() // takeDown does so again and reports
	return <-s.exited
}

// endedEarly tells why a stager ended before its pod was seen to be up, in its own
// words. A start that fails is exit status 1, so one that ends with another was
// up, for a moment.
func (p *Pod) endedEarly(exit Exit, ready func() error) error {
	if exit.Signal == "" && exit.Code != 1 {
		return ready()
	}
	how := fmt.Sprintf("exit status %d", exit.Code)
	if exit.Signal != "" {
		how = exit.Signal
	}
	words := lastLine(p.LogPath())
	if words == "" {
		words = "it said nothing"
	}
	return fmt.Errorf("the stager ended before the pod was up (%s): %s", how, words)
}

// maxWords is how much of a stager's last words is shown, in bytes.
const maxWords = 1 << 10

// lastLine reads the file's last line with text in it, of a long one the beginning.
func lastLine(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, maxWords)
	last := ""
	for {
		line, more, err := in.ReadLine()
		if err != nil {
			return last
		}
		text := string(bytes.TrimSpace(line))
		if more {
			text = strings.ToValidUTF8(text, "") + "…"
		}
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if text != "" {
			last = text
		}
	}
}

// takeDown removes what a pod has left behind. It may be repeated at will and
// needs nothing but the pod's folder.
func (p *Pod) takeDown(group *cgroups.Group, exit Exit, keep bool) error {
	if err := errors.Join(group.Kill(), group.Remove()); err != nil {
		return fmt.Errorf("take down pod %s: %w", p.Plan.UUID, err)
	}
	if !keep {
		return p.removeDir()
	}
	p.keepAppLogs()
	for _, name := range []string{rootDir, volumesDir} {
		if err := rmtree.Remove(filepath.Join(p.Dir, name)); err != nil {
			return fmt.Errorf("take down pod %s: %w", p.Plan.UUID, err)
		}
	}
	p.State.Phase, p.State.Exit = Exited, &exit
	if err := p.save(); err != nil {
		return fmt.Errorf("take down pod %s: %w", p.Plan.UUID, err)
	}
	return p.lock.Close()
}

// keepAppLogs moves the apps' logs out of the stager's root, for a person to
// read until gc. It keeps nothing if the pod's plan does not say where the logs are, or
// if that is not a folder inside the root. The pod is taken down all the same.
func (p *Pod) keepAppLogs() {
	if p.Plan.LogDir == "" {
		return
	}
	dir, err := os.OpenRoot(p.Dir)
	if err != nil {
		return
	}
	defer dir.Close()
	logs := filepath.Join(rootDir, filepath.Join("/", p.Plan.LogDir)) // ".." does not lead out of the root
	if info, err := dir.Lstat(logs); err == nil && info.IsDir() {
		_ = dir.Rename(logs, appLogsDir)
	}
}

// removeDir removes the pod's folder, its lock last: until then it is plain
// that somebody is at it.
func (p *Pod) removeDir() error {
	entries, err := os.ReadDir(p.Dir)
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Plan.UUID, err)
	}
	for _, e := range entries {
		if e.Name() == lockFile {
			continue
		}
		if err := rmtree.Remove(filepath.Join(p.Dir, e.Name())); err != nil {
			return fmt.Errorf("remove pod %s: %w", p.Plan.UUID, err)
		}
	}
	if err := rmtree.Remove(p.Dir); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.Plan.UUID, err)
	}
	if p.lock != nil {
		return p.lock.Close()
	}
	return nil
}
