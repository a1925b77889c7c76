package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"kurma.io/stager/manifest"
	"kurma.io/stager/names"
	"kurma.io/stager/plan"
	"kurma.io/stager/spec"
	"kurma.io/stager/unionfs"
)

// Decide reads the manifest at names.Manifest, and the configuration in the image, and plans the pod by the tables with
// rows. It changes nothing.
func Decide(runtime spec.Runtime, drivers []unionfs.Driver, rows plan.Rows) (*manifest.Manifest, *plan.Pod, error) {
	m, err := readManifest()
	if err != nil {
		return nil, nil, err
	}
	image, err := os.ReadFile(names.ConfigFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("read the image's configuration: %w", err)
	}
	pod, err := rows.Decide(m, runtime.Support(), unionfs.NamesOf(drivers), image)
	if err != nil {
		return nil, nil, err
	}
	return m, pod, checkDescriptors(pod.Apps)
}

func readManifest() (*manifest.Manifest, error) {
	f, err := os.Open(names.Manifest)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer f.Close()
	return manifest.Read(f)
}

// decide plans the pod, and makes its init, in the pod's namespaces.
func decide(_ context.Context, p *Pod) error {
	var err error
	if p.Manifest, p.Plan, err = Decide(p.Runtime, p.Drivers, p.Rows); err != nil {
		return err
	}
	if err := p.Init.Begin(p.Plan.Namespaces.CloneFlags(), p.Inherited.Ready); err != nil {
		return err
	}
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // on an error the pod gets a new UUID
	p.uuid = plan.PodUUID(string(cgroups))
	if p.LimitLog != nil {
		p.LimitLog(p.Plan.Config.Log.MaxSize)
	}
	p.logPlan()
	return nil
}

func (p *Pod) logPlan() {
	if p.Version != "" {
		p.Log.Info("stager", "version", p.Version)
	}
	p.logFates("", p.Plan.Fates)
	for _, warning := range p.Plan.Warnings {
		p.Log.Warn(warning)
	}
	for _, app := range p.Plan.Apps {
		p.logFates(app.Name, app.Fates)
		for _, warning := range app.Warnings {
			p.Log.Warn(warning, "app", app.Name)
		}
		for _, note := range app.Notes {
			p.Log.Info(note, "app", app.Name)
		}
	}
}

func (p *Pod) logFates(app string, fates []plan.IsolatorFate) {
	for _, f := range fates {
		level := slog.LevelInfo
		if f.Fate != plan.Enforced {
			level = slog.LevelWarn
		}
		p.Log.Log(context.Background(), level, "isolator", "app", app, "name", f.Name, "fate", f.Fate, "why", f.Why)
	}
}
