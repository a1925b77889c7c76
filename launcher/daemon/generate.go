package daemon

import (
	"slices"

	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"
)

// Generated is what starts a pod like another one.
type Generated struct {
	Manifest map[string]any `json:"manifest"` // the pod manifest
	Options  []string       `json:"options"`  // of run, which no manifest has
	// MakesFolder says that the stager has made the app's working directory if the image lacks it, as run --workdir asks
	// for. Only makeWorkingDirectory of defaultStagerConfig asks for it with a manifest.
	MakesFolder bool `json:"makesWorkingDirectory,omitempty"`
}

// Generate returns the pod manifest that starts a pod like this one, whether that was started by a manifest or by
// options. The image of a pod that was started by options is named as it was then.
func (d *Daemon) Generate(pod *pods.Pod) (Generated, error) {
	document, err := podplan.Generate(pod.Plan, d.volumes())
	if err != nil {
		return Generated{}, err
	}
	g := Generated{Manifest: document, Options: append([]string{}, pod.Plan.Options...)}
	if pod.Plan.CgroupParent != "" {
		g.Options = append(g.Options, "--cgroup-parent", pod.Plan.CgroupParent)
	}
	ends, err := podplan.Differs(pod.Plan, d.config.DefaultStagerConfig, "exitPolicy", `"all"`)
	if err != nil {
		return Generated{}, err
	}
	if pod.Plan.Image != "" && ends && !slices.Contains(g.Options, "--exit-policy") { // a manifest has another default
		g.Options = append(g.Options, "--exit-policy", "all")
	}
	g.MakesFolder, err = podplan.Differs(pod.Plan, d.config.DefaultStagerConfig, "makeWorkingDirectory", "true")
	return g, err
}
